package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// watch observes a world from a host of its own.
func watch(t testing.TB, n *simnet.Net, st store.Store) []Observed {
	t.Helper()
	all, err := Observe(t.Context(), st, n.Host("observer"), 0)
	require.NoError(t, err)
	return all
}

// peep makes an observer's link by hand, whose first exchange is of that kind.
func peep(t testing.TB, n *simnet.Net, w *Worker, kind uint8) (transport.Link, error) {
	t.Helper()
	link, err := n.Host("observer").Dial(t.Context(), w.members.Listener.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, link.Close("over")) })
	return link, inquire(t, link, &transport.Message{Kind: kind})
}

func inquire(t testing.TB, link transport.Link, m *transport.Message) error {
	reply, err := exchange(t.Context(), link, m, wire.NoTensors)
	if err != nil {
		return err
	}
	defer reply.Release()
	var h wire.ReplyHeader
	require.NoError(t, h.Parse(reply.Header))
	if h.Err != nil {
		return errorTypes{}.fromWire(h.Err)
	}
	return nil
}

func TestAnObserverSeesEveryPairFromBothEndsAndIsNoMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 4, simnet.Config{MinDelay: time.Millisecond}, serve(double))
		all := watch(t, n, ws[0].members.Registry.Store)
		require.Len(t, all, 4)
		for i, o := range all {
			require.NoError(t, o.Err)
			require.Equal(t, []any{i, ws[i].Name(), ws[i].members.Listener.Addr()}, []any{o.Rank, o.Name, o.Addr})
			require.Equal(t, []any{i, ws[i].Name(), 4, 0}, []any{o.Status.Rank, o.Status.Name, o.Status.World, o.Status.Omitted})
			require.Len(t, o.Status.Peers, 3)
			for _, p := range o.Status.Peers {
				require.NotEqual(t, i, p.Rank)
				require.Equal(t, PeerStatus{Name: ws[p.Rank].Name(), Rank: p.Rank, Addr: ws[p.Rank].members.Listener.Addr(), Calls: "sim", Tensors: "sim"}, p)
			}
			require.Len(t, ws[i].Workers(), 4)
		}
		_, err := peep(t, n, ws[0], wire.KindStatus)
		require.NoError(t, err)
		start := time.Now()
		leaveAll(t, ws) // with an observer's link to worker 0
		require.Less(t, time.Since(start), time.Second)
	})
}

func TestAnObserverMayAskAgainButNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := false
		touch := Define("touch", func(context.Context, int) (int, error) { ran = true; return 0, nil })
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, serve(touch))
		hello, err := wire.Encode(wire.HelloHeader{Member: roster.Member{Name: "worker1", Rank: 1, World: 2}, To: "worker0"})
		require.NoError(t, err)
		for _, m := range []*transport.Message{
			{Kind: wire.KindCall, Header: rawHeader(t, wire.CallHeader{Function: "touch", Args: []byte{1}})},
			{Kind: wire.KindHello, Header: hello},
			{Kind: wire.KindNews}, {Kind: wire.KindCleanup}, {Kind: wire.KindFetch}, {Kind: wire.KindRefs}, {Kind: wire.KindGradients}, {Kind: 255},
		} {
			link, err := peep(t, n, ws[0], wire.KindStatus)
			require.NoError(t, err)
			require.NoError(t, inquire(t, link, &transport.Message{Kind: wire.KindStatus}))
			err = inquire(t, link, m)
			require.ErrorIs(t, err, ErrRefused)
			require.ErrorContains(t, err, "an observer may ask for the status and nothing else")
			require.Error(t, inquire(t, link, &transport.Message{Kind: wire.KindStatus}), "that was the end")
			require.NoError(t, link.Close("refused"))
		}
		require.False(t, ran)
		_, err = peep(t, n, ws[0], wire.KindCall)
		require.Error(t, err, "nobody calls without a greeting")
		link, err := peep(t, n, ws[0], wire.KindStatus)
		require.NoError(t, err)
		require.ErrorIs(t, inquire(t, link, &transport.Message{Kind: wire.KindStatus, Header: make([]byte, maxStatusAsk+1)}), ErrProtocol)
	})
}

func TestObserversAreFewAndDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, nil)
		var links []transport.Link
		for range maxObservers {
			link, err := peep(t, n, ws[1], wire.KindStatus)
			require.NoError(t, err)
			links = append(links, link)
		}
		all := watch(t, n, ws[0].members.Registry.Store)
		require.NoError(t, all[0].Err)
		require.ErrorIs(t, all[1].Err, ErrBusy)
		time.Sleep(membership.HelloTimeout + time.Second)
		synctest.Wait()
		for _, link := range links {
			require.ErrorIs(t, link.Err(), transport.ErrPeerClosed)
		}
		require.NoError(t, watch(t, n, ws[0].members.Registry.Store)[1].Err)
		time.Sleep(time.Second)
		require.Zero(t, ws[1].serving.observers.Load())
	})
}

func TestAWorkerThatDoesNotAnswerInTimeIsListedAsSuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Detect: 10 * time.Second}, nil)
		n.Cut("observer", "host1")
		start := time.Now()
		all := watch(t, n, ws[0].members.Registry.Store)
		require.Equal(t, observeTimeout, time.Since(start))
		require.NoError(t, all[0].Err)
		require.NoError(t, all[2].Err)
		require.Equal(t, "worker1", all[1].Name)
		require.ErrorIs(t, all[1].Err, ErrTimeout)
		require.ErrorContains(t, all[1].Err, "did not answer within 2s")
	})
}

// The transport accepts for a worker that is stuck: it is the answer that does not come.
func TestAWorkerThatAcceptsAndSaysNothingIsListedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st, n := memory(t), simnet.New(simnet.Config{MinDelay: time.Millisecond})
		l, err := n.Host("mute").Listen(t.Context(), "mute:0")
		require.NoError(t, err)
		defer l.Close()
		put(t, st, roster.Member{Name: "mute", Rank: 0, World: 1, Addr: l.Addr()})
		all := watch(t, n, st)
		require.Len(t, all, 1)
		require.ErrorIs(t, all[0].Err, ErrTimeout)
	})
}

func put(t testing.TB, st store.Store, r roster.Member) {
	raw, err := wire.Encode(r)
	require.NoError(t, err)
	require.NoError(t, st.Set(t.Context(), membership.RankKey(r.Rank), raw))
}

func TestAnObserverOfAnotherJobIsRefusedByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, nil)
		all, err := Observe(t.Context(), ws[0].members.Registry.Store, n.HostWithToken("observer", "another job's"), 0)
		require.NoError(t, err)
		for _, o := range all {
			require.ErrorIs(t, o.Err, transport.ErrIdentity)
			require.Nil(t, o.Status)
		}
	})
}

func TestALostWorkerIsSeenAsSuchByTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond, Detect: 3 * time.Second}, nil)
		n.Kill("host1")
		time.Sleep(4 * time.Second)
		all := watch(t, n, ws[0].members.Registry.Store)
		require.Error(t, all[1].Err)
		for _, i := range []int{0, 2} {
			at := slices.IndexFunc(all[i].Status.Peers, func(p PeerStatus) bool { return p.Rank == 1 })
			p := all[i].Status.Peers[at]
			require.Contains(t, p.Gone, "peer lost")
			require.Empty(t, p.Calls)
		}
	})
}

func TestTheStoreSaysWhoIsThereAndTheWorkersWhoElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 3, simnet.Config{MinDelay: time.Millisecond}, nil)
		st := ws[0].members.Registry.Store
		for rank, bad := range map[int]string{0: "", 1: "nonsense"} {
			if _, err := st.Delete(t.Context(), membership.RankKey(rank)); bad == "" {
				require.NoError(t, err)
				continue
			}
			require.NoError(t, st.Set(t.Context(), membership.RankKey(rank), []byte(bad)))
		}
		all := watch(t, n, st) // ranks 0 and 1 are known through rank 2
		require.Len(t, all, 3)
		for i, o := range all {
			require.NoError(t, o.Err)
			require.Equal(t, fmt.Sprintf("worker%d", i), o.Status.Name)
		}
		_, err := Observe(t.Context(), store.NewPrefix("elsewhere", st), n.Host("observer"), 0)
		require.ErrorIs(t, err, ErrNoJob)
	})
}

func TestAWorkerThatHasNotJoinedIsListedByItsRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		st, n := memory(t), simnet.New(simnet.Config{MinDelay: time.Millisecond})
		put(t, st, roster.Member{Name: "one", Rank: 1, World: 3, Addr: "nobody:1"})
		put(t, st, roster.Member{Name: "two\x1b[2J", Rank: 2, World: 3, Addr: "nobody:2"})
		all := watch(t, n, st)
		require.Len(t, all, 3)
		require.ErrorContains(t, all[0].Err, "has not joined yet, or has left")
		require.ErrorIs(t, all[1].Err, ErrTimeout)
		require.ErrorIs(t, all[2].Err, ErrProtocol)
	})
}

func TestAnObserversErrorIsTheStores(t *testing.T) {
	n := simnet.New(simnet.Config{})
	st := store.NewMemory()
	require.NoError(t, st.Close())
	_, err := Observe(t.Context(), st, n.Host("observer"), time.Second)
	require.ErrorIs(t, err, store.ErrClosed)
}

func TestAWorkersAddressAnswersForThatWorkerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws, n := simWith(t, 2, simnet.Config{MinDelay: time.Millisecond}, nil)
		put(t, ws[0].members.Registry.Store, roster.Member{Name: "worker0", Rank: 0, World: 2, Addr: ws[1].members.Listener.Addr()})
		all := watch(t, n, ws[0].members.Registry.Store)
		require.ErrorIs(t, all[0].Err, ErrProtocol)
		require.ErrorContains(t, all[0].Err, "worker1 of rank 1 answers at the address of worker0 of rank 0")
	})
}

func TestObservingOverQUICShowsTheLanesOfRealLinks(t *testing.T) {
	ws := world(t, 2, nil, nil)
	id, err := transport.IdentityFromToken(testToken, NoJob, "observer", time.Now)
	require.NoError(t, err)
	net, err := transport.New(transport.Config{Identity: id, Lanes: []string{transport.LaneQUIC}, Logger: discard})
	require.NoError(t, err)
	all, err := Observe(t.Context(), ws[0].members.Registry.Store, net, 10*time.Second)
	require.NoError(t, err)
	l := ws[0].Lanes()[0]
	for i, o := range all {
		require.NoError(t, o.Err)
		p := o.Status.Peers[0]
		require.Equal(t, []string{l.Calls, l.Tensors}, []string{p.Calls, p.Tensors})
		require.Equal(t, l.whyNotBetter() == "", p.Why == "", "worker %d: %q", i, p.Why)
	}
}

// fixedLanes is a link that has these.
type fixedLanes struct {
	transport.Link
	lanes []transport.LaneState
}

func (l fixedLanes) Lanes() []transport.LaneState { return l.lanes }

func TestTheLanesInUseComeWithTheReasonsOfBetterOnes(t *testing.T) {
	state := func(name, why string) transport.LaneState { return transport.LaneState{Name: name, Why: why} }
	for _, c := range []struct {
		lanes               []transport.LaneState
		calls, tensors, why string
	}{
		{nil, "", "", ""},
		{[]transport.LaneState{state("sim", "")}, "sim", "sim", ""},
		{[]transport.LaneState{state("local", ""), state("bulk", "one host"), state("quic", "")}, "local", "local", ""},
		{[]transport.LaneState{state("local", "far"), state("bulk", ""), state("quic", "")}, "quic", "bulk", "local: far"},
		{[]transport.LaneState{state("local", "far"), state("bulk", "shut"), state("quic", "")}, "quic", "quic", "local: far; bulk: shut"},
		{[]transport.LaneState{state("bulk", ""), state("local", "late"), state("quic", "")}, "quic", "bulk", "local: late"},
		{[]transport.LaneState{state("local", strings.Repeat("é", 1000)), state("quic", "")}, "quic", "quic", bounded("local: "+strings.Repeat("é", 1000), maxStatusText)},
	} {
		l := lanesOf("peer", fixedLanes{lanes: c.lanes})
		require.Equal(t, []string{c.calls, c.tensors, c.why}, []string{l.Calls, l.Tensors, l.whyNotBetter()})
	}
}

func TestAStatusThatDoesNotFitSaysHowManyItLeavesOut(t *testing.T) {
	all := make([]membership.Standing, 5000)
	for rank := range all {
		all[rank].Peer, all[rank].Gone = &membership.Peer{Rank: rank, Name: fmt.Sprintf("worker%d", rank), Addr: "host:1"}, errors.New(strings.Repeat("x", 40))
	}
	st := statusOf("w", 1, 5000, all)
	require.Equal(t, 4999, len(st.Peers)+st.Omitted)
	raw, err := wire.Encode(st)
	require.NoError(t, err)
	got, err := decodeStatus(raw)
	require.NoError(t, err)
	require.Equal(t, st, *got)
	for rank := range all {
		all[rank].Gone = errors.New(strings.Repeat("long ", 1000))
	}
	raw, err = wire.Encode(statusOf("w", 1, 5000, all))
	require.NoError(t, err)
	require.LessOrEqual(t, len(raw), maxStatus+maxStatus/8)
}

func TestAStatusThatCannotBeIsRefusedAndItsTextsAreHarmless(t *testing.T) {
	fine := Status{Name: "a", Rank: 1, World: 2, Peers: []PeerStatus{{Name: "b", Addr: "b:1", Why: "x\x1b]0;owned\a\ny", Gone: strings.Repeat("z", 1000)}}}
	raw, err := wire.Encode(fine)
	require.NoError(t, err)
	got, err := decodeStatus(raw)
	require.NoError(t, err)
	require.Equal(t, "x ]0;owned  y", got.Peers[0].Why)
	require.Less(t, len(got.Peers[0].Gone), 400)
	for name, change := range map[string]func(*Status){
		"name":    func(s *Status) { s.Name = "a\x1b" },
		"rank":    func(s *Status) { s.Rank = -1 },
		"world":   func(s *Status) { s.World = 1 << 20 },
		"omitted": func(s *Status) { s.Omitted = -1 },
		"peer":    func(s *Status) { s.Peers = []PeerStatus{{Name: ""}} },
		"ranks":   func(s *Status) { s.Peers = []PeerStatus{{Name: "b", Rank: 1 << 16}} },
		"lane":    func(s *Status) { s.Peers = []PeerStatus{{Name: "b", Calls: strings.Repeat("q", 17)}} },
		"peers":   func(s *Status) { s.Peers = make([]PeerStatus, maxStatusPeers+1) },
	} {
		st := fine
		change(&st)
		raw, err := wire.Encode(st)
		require.NoError(t, err)
		_, err = decodeStatus(raw)
		require.ErrorIs(t, err, ErrProtocol, name)
	}
	_, err = decodeStatus(make([]byte, 1<<20))
	require.ErrorIs(t, err, ErrProtocol)
}

func FuzzStatus(f *testing.F) {
	for _, st := range []Status{{Name: "a"}, {Name: "a", Rank: 1, World: 2, Peers: []PeerStatus{{"b", 0, "b:1", "quic", "bulk", "why", "gone"}}, Omitted: 3}, {Name: "a", Groups: []GroupStatus{aGroup()}}} {
		raw, err := wire.Encode(st)
		require.NoError(f, err)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		st, err := decodeStatus(raw)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.LessOrEqual(t, len(st.Peers), maxStatusPeers)
		again, err := wire.Encode(st)
		require.NoError(t, err)
		for _, p := range st.Peers {
			require.Equal(t, p.Gone, strings.Map(func(r rune) rune {
				if r < ' ' || r == 0x7f {
					return -1
				}
				return r
			}, p.Gone))
		}
		if len(again) <= maxStatus {
			_, err = decodeStatus(again)
			require.NoError(t, err)
		}
	})
}
