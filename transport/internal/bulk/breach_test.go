package bulk_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/bulk"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestAPeerThatBreaksTheRulesOnAStripeLosesItsLink(t *testing.T) {
	leak.Check(t)
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(t, err)
	n, err := link.New(link.Config{Identity: id, Lanes: []string{wire.LaneBulk}})
	require.NoError(t, err)
	l := transporttest.Listen(t, n)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")
	session := here.(interface{ Channel(code byte) lane.Channel })
	err = bulk.WriteBlockHead(session.Channel(wire.LaneCode(wire.LaneBulk)), 4711, 0)
	require.NoError(t, err)
	<-there.Done()
	require.ErrorIs(t, there.Err(), wire.ErrPeerLost)
	require.ErrorIs(t, there.Err(), wire.ErrFrame)
	<-here.Done()
}
