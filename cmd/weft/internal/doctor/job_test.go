package doctor

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/crew"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

func TestDoctorThatWasGivenWhereTheMachinesMeetDoesNotAskForThat(t *testing.T) {
	require.Contains(t, nobodyJoined("h:1", false).Error(), "give where the machines meet")
	err := nobodyJoined("h:1", true)
	require.NotContains(t, err.Error(), "--rdzv-endpoint")
	require.ErrorContains(t, err, "the store of this round's workers, at h:1, was found, but no worker has joined there")
	require.ErrorContains(t, err, "does not use Weft's rpc")
}

// status is that of a worker of a world whose workers are all linked.
func status(world, rank int) *rpc.Status {
	st := &rpc.Status{Name: fmt.Sprintf("w%d", rank), Rank: rank, World: world}
	for peer := range world {
		if peer != rank {
			st.Peers = append(st.Peers, rpc.PeerStatus{Name: fmt.Sprintf("w%d", peer), Rank: peer, Calls: "local", Tensors: "local"})
		}
	}
	return st
}

func observed(sts ...*rpc.Status) (all []rpc.Observed) {
	for _, st := range sts {
		all = append(all, rpc.Observed{Name: st.Name, Rank: st.Rank, Addr: "127.0.0.1:9", Status: st})
	}
	return all
}

func TestAPairIsListedOnceAndALossSeenByEitherEndCounts(t *testing.T) {
	a, b, c := status(4, 0), status(4, 1), status(4, 2)
	b.Peers[0] = rpc.PeerStatus{Name: "w0", Rank: 0, Gone: "peer lost"}
	a.Peers[1].Calls, c.Peers[0].Calls = "", ""
	c.Peers[2] = rpc.PeerStatus{Name: "w3", Rank: 3, Calls: "quic", Tensors: "bulk", Why: "local: far"}
	list, unlinked := pairs(observed(c, a, b))
	require.Equal(t, 1, unlinked)
	require.ElementsMatch(t, []pair{
		{"w1", "w2", "local", "local", "", ""}, {"w2", "w3", "quic", "bulk", "local: far", ""},
		{"w0", "w1", "local", "local", "", "peer lost"}, {"w0", "w3", "local", "local", "", ""}, {"w1", "w3", "local", "local", "", ""},
	}, list)
}

func TestOfManyPairsTheOnesThatCouldBeBetterComeFirst(t *testing.T) {
	sts := make([]*rpc.Status, 30)
	for i := range sts {
		sts[i] = status(30, i)
	}
	sts[28].Peers[28] = rpc.PeerStatus{Name: "w29", Rank: 29, Calls: "quic", Tensors: "quic", Why: "local: far"}
	var out bytes.Buffer
	printPairs(&out, observed(sts...), false)
	lines := strings.Split(out.String(), "\n")
	require.Equal(t, "workers 30, linked pairs 435", lines[0])
	require.Equal(t, "w28     w29     quic   quic     local: far", lines[3])
	require.Contains(t, out.String(), "… and 395 more; --all shows them\n")
	out.Reset()
	printPairs(&out, observed(sts...), true)
	require.Equal(t, 3+435, strings.Count(out.String(), "\n"))
}

func TestWhoIsNotReachedIsNamedWithAGuess(t *testing.T) {
	fine := observed(status(2, 0))
	fine[0].Status.Omitted = 7
	var out bytes.Buffer
	printSilent(&out, append(fine,
		rpc.Observed{Rank: 1, Err: errors.New("it has not joined")},
		rpc.Observed{Name: "w2", Rank: 2, Addr: "127.0.0.1:9", Err: fmt.Errorf("no\x1b[2Jroute: %w", transport.ErrUnreachable)},
		rpc.Observed{Name: "w3", Rank: 3, Addr: "10.0.0.1:9", Err: rpc.ErrTimeout},
	), "10.0.0.1:29500")
	require.Equal(t, `w0 left out 7 of its peers

not reached:
  rank 1: it has not joined
  rank 2, w2 at 127.0.0.1:9: no [2Jroute: unreachable; only its own machine reaches that address: run this there, or set rpc.Config.Listen
  rank 3, w3 at 10.0.0.1:9: `+rpc.ErrTimeout.Error()+"; it hangs, is still joining, or something on the way drops UDP\n", out.String())
	for _, here := range []string{"127.0.0.1:29500", "localhost:29500", "[::1]:29500"} {
		require.NotContains(t, whyUnreachable(rpc.Observed{Addr: "127.0.0.1:9", Err: rpc.ErrTimeout}, here), "its own machine")
	}
}

func TestDoctorFindsAStoreWithTLSAndOneWithout(t *testing.T) {
	leak.Check(t)
	id, err := transport.IdentityFromToken(transport.NewToken(), rpc.NoJob, "the store", nil)
	require.NoError(t, err)
	for _, cfg := range []store.ServerConfig{{}, {TLS: id.StoreTLS()}, {TLS: id.StoreTLS(), Plain: store.PlainNever}} {
		srv, err := store.Serve(cfg)
		require.NoError(t, err)
		st, err := crew.Dial(t.Context(), srv.Addr(), id, 500*time.Millisecond)
		require.NoError(t, err)
		require.NoError(t, st.Close())
		require.NoError(t, srv.Close())
	}
}

func TestWordsOfWorkersThatAreNotReachedSteerNoTerminal(t *testing.T) {
	var out bytes.Buffer
	steers := errors.New("\x1b]0;mine\a\x1b[2J\rweft: all is well\u009b31m\u202e")
	printSilent(&out, []rpc.Observed{{Rank: 1, Name: "worker1", Addr: "h:1", Err: steers}}, "127.0.0.1:1")
	require.Contains(t, out.String(), "mine")
	require.Equal(t, printable.Lines(out.String(), out.Len()), out.String())
}
