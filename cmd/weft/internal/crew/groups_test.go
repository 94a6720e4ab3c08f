package crew

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc"
)

func TestAStuckGroupIsShownWithTheLinesOfAllItsMembersAndWhomTheyWaitFor(t *testing.T) {
	a, b, c := &rpc.Status{Name: "w0"}, &rpc.Status{Name: "w1", Rank: 1}, &rpc.Status{Name: "w2", Rank: 2}
	all := []rpc.Observed{{Name: "w0", Status: a}, {Name: "w1", Status: b}, {Name: "w2", Status: c}}
	var out bytes.Buffer
	PrintGroups(&out, all)
	require.Empty(t, out.String())
	a.Groups = []rpc.GroupStatus{{Name: "g", Size: 3, Pending: []rpc.GroupPending{
		{Key: "#7", Call: "Barrier by spread", Line: "train.go:9", Seconds: 61.5, Waits: []rpc.GroupAwaited{{Worker: "w1", Line: "train.go:9"}, {Worker: "w2"}}},
	}, Omitted: 2}}
	b.Groups = []rpc.GroupStatus{{Name: "g", Rank: 1, Size: 3}, {Name: "old", Size: 2, Ended: "a member of the group is gone"}}
	PrintGroups(&out, append(all, rpc.Observed{Name: "w3"}))
	require.Equal(t, `
GROUP              WORKER  WAITS IN              AT          FOR     FOR WHOM
g (rank 0 of 3)    w0      Barrier by spread #7  train.go:9  1m1.5s  w1 (at train.go:9), w2
g (rank 0 of 3)    w0      and 2 more
old (rank 0 of 2)  w1      it has ended: a member of the group is gone
`, out.String())
}
