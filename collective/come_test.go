package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/ballot"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
	"github.com/weft-project/weft/transport/simnet"
)

// opened opens groups by their members' ranks, in that order.
func opened(c context.Context, ws []*rpc.Worker, rank int, order [][]int) (gs []*Group, err error) {
	for _, ranks := range order {
		var names []string
		for _, r := range ranks {
			names = append(names, ws[r].Name())
		}
		g, err := Open(c, ws[rank], "g", names...)
		if err != nil {
			return gs, err
		}
		gs = append(gs, g)
	}
	return gs, nil
}

// sumIn sums the ranks of the members in each group, in any order, and closes the groups.
func sumIn(c context.Context, gs []*Group, r *rand.Rand) (err error) {
	for _, i := range r.Perm(len(gs)) { // operations of different groups need no order if nobody waits
		x := []int32{int32(gs[i].Rank())}
		done := make(chan error, 1)
		go func() { done <- AllReduce(c, gs[i], x, Sum) }()
		defer func() {
			e := <-done
			if n := int32(gs[i].Size()); e == nil && x[0] != n*(n-1)/2 {
				e = fmt.Errorf("a sum of %d; expected that of %d members", x[0], n)
			}
			err = errors.Join(err, e)
		}()
	}
	return nil
}

func TestGroupsAreOpenedInAnyOrder(t *testing.T) {
	for seed := range uint64(soak.Cases(30)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 2+r.IntN(3))
			var all [][]int // every set of members with a bit for each, of two and more
			for set := range 1 << len(ws) {
				var ranks []int
				for rank := range ws {
					if set>>rank&1 == 1 {
						ranks = append(ranks, rank)
					}
				}
				if len(ranks) > 1 && r.IntN(2) == 0 {
					all = append(all, ranks)
				}
			}
			orders, seeds := make([][][]int, len(ws)), make([]uint64, len(ws))
			for rank := range ws {
				for _, i := range r.Perm(len(all)) {
					if slices.Contains(all[i], rank) {
						orders[rank] = append(orders[rank], all[i])
					}
				}
				seeds[rank] = r.Uint64()
			}
			began := time.Now()
			opens := make([][]*Group, len(ws))
			each(t, ws, func(rank int) (err error) {
				if opens[rank], err = opened(t.Context(), ws, rank, orders[rank]); err != nil {
					return err
				}
				return sumIn(t.Context(), opens[rank], rand.New(rand.NewPCG(seeds[rank], 1)))
			})
			each(t, ws, func(rank int) (err error) {
				for _, g := range opens[rank] {
					err = errors.Join(err, g.Close())
				}
				return err
			})
			require.Less(t, time.Since(began), time.Duration(1+len(all))*3*askFrom, "%d groups of %d workers", len(all), len(ws))
		})
	}
}

func TestWhoWaitsInAnotherOpenIsAwaitedByTheFirstOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3)
		each(t, ws, func(rank int) error {
			orders := [][][]int{{{0, 1}}, {{1, 2}, {0, 1}}, {{1, 2}}}
			if rank == 2 {
				time.Sleep(10 * time.Second)
			}
			began := time.Now()
			gs, err := opened(t.Context(), ws, rank, orders[rank])
			if took := time.Since(began); rank == 0 && took > time.Second {
				err = errors.Join(err, fmt.Errorf("Open took %v; the other waits in an Open, too", took))
			}
			if err != nil {
				return err
			}
			for _, g := range gs {
				err = errors.Join(err, g.Barrier(t.Context()))
			}
			if rank == 0 && time.Since(began) < 10*time.Second {
				err = errors.Join(err, errors.New("a barrier ended before all had come"))
			}
			for _, g := range gs {
				err = errors.Join(err, g.Close())
			}
			return err
		})
	})
}

func TestAGroupThatDoesNotComeTogetherEndsAndNamesWhoIsMissing(t *testing.T) {
	for _, bound := range []string{"Open's deadline", "the operation's deadline", "cancelled", "closed"} {
		t.Run(bound, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ws := rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3)
				done := make(chan error, 1)
				c, cancel := context.WithTimeout(t.Context(), time.Minute) // the other waits in vain, elsewhere
				go func() {
					_, err := Open(c, ws[1], "other", ws[1].Name(), ws[2].Name())
					done <- err
				}()
				of, end := context.WithTimeout(t.Context(), map[bool]time.Duration{true: 5 * time.Second, false: time.Hour}[bound == "Open's deadline"])
				defer end()
				g, err := Open(of, ws[0], "g", ws[0].Name(), ws[1].Name())
				require.NoError(t, err)
				op, stop := context.WithCancelCause(t.Context())
				if bound == "the operation's deadline" {
					var end context.CancelFunc
					op, end = context.WithTimeout(op, time.Second)
					defer end()
				}
				why := errors.New("enough")
				time.AfterFunc(2*time.Second, func() {
					switch bound {
					case "cancelled":
						stop(why)
					case "closed":
						_ = g.Close()
					}
				})
				err = g.Barrier(op)
				switch bound {
				case "cancelled":
					require.ErrorIs(t, err, why)
				case "closed":
					require.ErrorIs(t, err, ErrClosed)
				default:
					require.ErrorIs(t, err, rpc.ErrTimeout)
					require.ErrorContains(t, err, ws[1].Name())
				}
				<-g.Done()
				require.Error(t, g.Err())
				for _, call := range []func() error{
					func() error { return Send(t.Context(), g, 1, 0, []int32{1}) },
					func() error { _, err := g.Without(t.Context()); return err },
					func() error { _, err := g.With(t.Context()); return err },
					func() error { _, _, err := g.Hosts(t.Context()); return err },
					func() error { _, err := g.Split(t.Context(), 0, 0); return err },
					func() error { return g.Tune(t.Context()) },
					func() error { return new(Narrow).AllReduce(t.Context(), g, nil, Sum) },
					func() error { _, err := g.AllReduceBuffers(t.Context(), Sum, 1).Wait(t.Context()); return err },
					func() error { _, err := g.Compound(t.Context(), "x"); return err },
				} {
					require.Error(t, call())
				}
				require.NoError(t, g.Close())
				cancel()
				require.Error(t, <-done)
				stop(nil)
			})
		})
	}
}

func TestOpenReturnsAGroupThatIsWholeWhereNobodyWaitsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ws := rpctest.World(t, rpctest.SlowNet(200*time.Millisecond), 4) // slower than askFrom
		gs := groups(t, ws, "g")
		for _, g := range gs {
			select {
			case <-g.coming.ready:
			default:
				require.Fail(t, "not all have come")
			}
		}
	})
}

// What a member of the group before has sent, and what arrives when the next one is there, is not
// taken for the next one's: with links that are slow one way it would often be.
func TestNotesOfAGroupThatWasClosedAreNotTakenForThoseOfTheNext(t *testing.T) {
	for seed := range uint64(soak.Cases(20)) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			gs := groups(t, rpctest.World(t, rpctest.SlowNet(time.Millisecond), 3), "g")
			late := func(g *Group) { // as a network that holds messages back would deliver them
				k := r.IntN(len(gs))
				for _, n := range []note{
					{Closed: true, Sent: 1},
					{Failure: &noteFailure{What: failedAborted, Group: true, Text: "late"}},
					{Failure: &noteFailure{What: failedAborted, Text: "late"}},
				} {
					var b bytes.Buffer
					n.encode(&b)
					if k != g.rank {
						require.NoError(t, rpc.Post(t.Context(), g.w, gs[k].w.Name(), g.service, b.Bytes()))
					}
				}
			}
			for range 3 {
				before := gs
				each(t, gs, func(k int) error { return errors.Join(gs[k].Barrier(t.Context()), gs[k].Close()) })
				gs = make([]*Group, len(before))
				each(t, before, func(k int) (err error) {
					gs[k], err = Open(t.Context(), before[k].w, "g")
					return err
				})
				late(before[r.IntN(len(before))])
				synctest.Wait()
				each(t, gs, func(k int) error { return gs[k].Barrier(t.Context()) })
			}
			each(t, gs, func(k int) error { return gs[k].Close() })
		})
	}
}

func TestAMemberThatIsLostAfterAnEarlyOpenIsNamedByTheFirstOperation(t *testing.T) {
	for what, lose := range map[string]func(net *simnet.Net, w *rpc.Worker){
		"killed": func(net *simnet.Net, w *rpc.Worker) { net.Kill(rpctest.Host(1)) },
		"left":   func(net *simnet.Net, w *rpc.Worker) { _ = w.Close() },
	} {
		for _, waits := range []bool{false, true} { // the first operation is under way then
			t.Run(fmt.Sprintf("%s/%v", what, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					net := rpctest.SlowNet(time.Millisecond)
					ws := rpctest.World(t, net, 3)
					elsewhere, end := context.WithCancel(t.Context())
					over := make(chan error, 1)
					go func() {
						_, err := Open(elsewhere, ws[1], "other", ws[1].Name(), ws[2].Name())
						over <- err
					}()
					g, err := Open(t.Context(), ws[0], "g", ws[0].Name(), ws[1].Name())
					require.NoError(t, err, "the other waits in an Open, too")
					call := make(chan error, 1)
					first := func() { call <- g.Barrier(t.Context()) }
					if waits {
						go first()
						synctest.Wait()
					}
					lose(net, ws[1])
					if !waits {
						<-g.Done()
						first()
					}
					err = <-call
					var lost *LostError
					require.ErrorAs(t, err, &lost)
					require.Equal(t, ws[1].Name(), lost.Worker)
					require.ErrorAs(t, g.Err(), &lost)
					end()
					require.Error(t, <-over)
					require.NoError(t, g.Close())
				})
			})
		}
	}
}

// A worker of the job may say anything of who has come.
func FuzzWordsOfOpen(f *testing.F) {
	w, err := rpc.Join(f.Context(), rpc.Config{Store: store.NewMemory(), WorldSize: 1, Name: "worker0", Token: secrettest.Token("job")})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, w.Close()) })
	f.Add([]byte{}, []byte{comeAsks}, uint8(0))
	f.Add([]byte{comeAnswers}, []byte{comeAnswers, 'x'}, uint8(1))
	f.Add([]byte{0}, []byte{255, 1}, uint8(2))
	f.Fuzz(func(t *testing.T, coming, opening []byte, who uint8) {
		var roll ballot.Roll
		for r := range 3 {
			roll.Members = append(roll.Members, ballot.Who{Name: fmt.Sprint("worker", r), Rank: r})
		}
		g := newGroup(w, "g", roll)
		defer g.shut()
		g.coming.service = "collective/come/x"
		from := rpc.WorkerInfo{Name: fmt.Sprint("worker", who%4)} // the last is no member
		for _, x := range []struct {
			say  []byte
			hear posts
		}{{coming, g.hearComing}, {opening, g.hearOpening}} {
			buf, err := device.Host().Alloc(8)
			require.NoError(t, err)
			x.hear(from, x.say, []transport.Tensor{{Buf: buf}, {}})
			require.Error(t, buf.Release(), "it was released")
		}
		word := func(b []byte, what byte) bool { return len(b) > 0 && b[0] == what }
		come := word(coming, comeAnswers)
		waits := word(opening, comeAnswers) && !bytes.Equal(opening, g.comes())
		for r := 1; r < 3; r++ {
			name := fmt.Sprint("worker", r)
			spoke := name == from.Name
			require.Equal(t, !(spoke && come), slices.Contains(g.absent(false), name))
			require.Equal(t, !(spoke && (come || waits)), slices.Contains(g.absent(true), name))
		}
		require.LessOrEqual(t, len(g.coming.come)+len(g.coming.waits), 2)
	})
}
