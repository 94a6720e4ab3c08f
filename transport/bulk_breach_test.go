package transport

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/transporttest"
)

func TestAPeerThatBreaksTheRulesOnAStripeLosesItsLink(t *testing.T) {
	leak.Check(t)
	cfg := Config{Identity: fromToken(t, transporttest.Token(), "w", time.Now), Lanes: []string{LaneBulk}}
	l := listen(t, cfg)
	n, err := New(cfg)
	require.NoError(t, err)
	here, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	defer here.Close("")
	there, err := l.Accept(t.Context())
	require.NoError(t, err)
	defer there.Close("")
	h := here.(*quicLink).hauler(laneCode(LaneBulk)).(*bulkHauler)
	_, err = h.stripes[0].conn.Write(head(4711, 0))
	require.NoError(t, err)
	<-there.Done()
	require.ErrorIs(t, there.Err(), ErrPeerLost)
	require.ErrorIs(t, there.Err(), ErrFrame)
	<-here.Done()
}
