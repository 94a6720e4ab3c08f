package outer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
)

// TestWhoeverIsKilledAndWhoeverComesWheneverAllEndAtTheSame has processes killed and replaced,
// killed and not replaced, cut off from one another, and others come, at random moments, also while
// one that came before is taken in.
func TestWhoeverIsKilledAndWhoeverComesWheneverAllEndAtTheSame(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 7))
	for k := range soak.Cases(20) {
		cfg, seed, exact := drawConfig(r), r.Uint64(), k%2 == 0
		cfg.Every += 3
		cfg.Wire = Wire(r.IntN(4))
		if exact {
			cfg = Config{Every: cfg.Every, FirstCalls: cfg.FirstCalls, LR: 1, Momentum: optim.Zero}
		}
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newCamp(t, seed, cfg, 12)
				m.disturb()
				m.end()
				t.Logf("%+v: %d epochs, %d lives, %d ended, %d changes, %v", cfg, m.epoch, m.lives, len(m.ended), len(m.changes), m.failed)
				require.Zero(t, m.anew)
				if exact {
					m.requireOracle()
				}
			})
		})
	}
}

// TestALossWhereSomeHaveAllOfAFinishAndOthersHaveNotPartsNobody kills one as another one goes on
// after a Finish of which a third one has not had the last result.
func TestALossWhereSomeHaveAllOfAFinishAndOthersHaveNotPartsNobody(t *testing.T) {
	for seed := range uint64(soak.Cases(15)) {
		synctest.Test(t, func(t *testing.T) {
			m := newCamp(t, seed, Config{Every: 5}, 12)
			var evals atomic.Int64
			m.evals, m.eval = 7, func(p *proc) {
				if evals.Add(1) == 6 {
					m.slay(func(o *proc) bool { return o != p })
				}
			}
			for range 5 {
				m.start()
			}
			m.form()
			time.AfterFunc(8*time.Second, func() { // the nodes notice
				m.start()
				m.form()
			})
			m.end()
			require.Empty(t, m.failed, "seed %d", seed)
		})
	}
}

// TestEachTellsWhoIsLostAndWhoComes kills one of three, has another one come in its place, and then
// a fourth.
func TestEachTellsWhoIsLostAndWhoComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCamp(t, 1, Config{Every: 5, FirstCalls: true}, 40)
		for range 3 {
			m.start()
		}
		m.form()
		time.Sleep(time.Second)
		lost := m.slay(anybody)
		name := fmt.Sprint("worker", lost.place.Rank)
		time.Sleep(3 * time.Second)
		came := m.start()
		m.form()
		time.Sleep(2 * time.Second)
		late := m.start()
		m.form()
		m.end()
		var said []Change
		for _, ch := range m.changes {
			for _, list := range []*[]string{&ch.Lost, &ch.Came} {
				slices.Sort(*list)
			}
			require.NotZero(t, ch.Round)
			ch.Round, ch.Rank = 0, 0
			said = append(said, ch)
		}
		all := []string{"worker0", "worker1", "worker2", "worker3"}
		left := slices.DeleteFunc(slices.Clone(all[:3]), func(n string) bool { return n == name })
		var want []Change
		for range 2 {
			want = append(want, Change{Members: left, Lost: []string{name}})
		}
		for range 3 {
			want = append(want, Change{Members: all[:3], Came: []string{fmt.Sprint("worker", came.ranks[0])}})
		}
		for range 4 {
			want = append(want, Change{Members: all, Came: []string{fmt.Sprint("worker", late.ranks[0])}})
		}
		require.Equal(t, want, said)
	})
}

// TestAWorkerWhoIsToBlameEndsAtOnceAndTheOthersGoOn has one whose rows cannot be read, one whose
// values diverge, and one that comes with other parameters.
func TestAWorkerWhoIsToBlameEndsAtOnceAndTheOthersGoOn(t *testing.T) {
	unread := errors.New("its rows cannot be read")
	for what, do := range map[string]func(m *camp, p *proc) (ends any){
		"rows": func(m *camp, p *proc) any {
			p.inner = func() error { return unread }
			return &unread
		},
		"values": func(m *camp, p *proc) any {
			p.inner = func() error { return spoil(p.params[3]) }
			return new(*DivergedError)
		},
		"parameters": func(m *camp, p *proc) any {
			p.params = p.params[1:]
			return new(*parallel.DifferenceError)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newCamp(t, 1, Config{Every: 5, Delay: 1}, 20)
				m.start()
				m.start()
				m.form()
				time.Sleep(time.Second)
				p := m.start()
				ends := do(m, p)
				m.form()
				m.end()
				require.Len(t, m.ended, 3)
				require.Len(t, m.failed, 1)
				if what == "rows" {
					require.ErrorIs(t, m.failed[0], unread)
				} else {
					require.ErrorAs(t, m.failed[0], ends)
				}
				require.Zero(t, m.anew)
				require.Less(t, p.failed, 2*time.Second, "it does not wait for another place: %v", m.failed)
			})
		})
	}
}

// TestWhereTheNodesSeeNothingOneEndsSoThatTheOthersGoOn cuts the two off from each other that have
// the state, at different moments of an epoch's beginning, for longer than a link lives.
func TestWhereTheNodesSeeNothingOneEndsSoThatTheOthersGoOn(t *testing.T) {
	failed := 0
	for after := range 8 {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newCamp(t, uint64(after), Config{Every: 5}, 20)
				a, b := m.start(), m.start()
				m.form()
				time.Sleep(time.Second)
				m.start()
				m.form()
				time.Sleep(100*time.Millisecond + time.Duration(after)*40*time.Millisecond)
				m.net.Cut(a.host, b.host)
				time.Sleep(1500 * time.Millisecond)
				m.net.Heal(a.host, b.host)
				m.end()
				require.Zero(t, m.anew)
				require.LessOrEqual(t, len(m.failed), 1, "%v", m.failed)
				failed += len(m.failed)
			})
		})
	}
	require.Positive(t, failed)
}

func TestWhereAllThatHadTheStateAreLostTrainingBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCamp(t, 1, Config{Every: 5}, 20)
		m.start()
		m.form()
		time.Sleep(2 * time.Second)
		m.start()
		p := m.procs[0]
		p.has = false // so that it may be killed
		m.procs[1].has = true
		require.NotNil(t, m.slay(func(o *proc) bool { return o == p }))
		m.procs[0].has = false
		m.form()
		m.end()
		require.Equal(t, 1, m.anew)
		require.EqualValues(t, 100, m.ended[0].steps)
	})
}

// TestWorkThatEndsAtDifferentExchangesEndsWithAnError has one of two workers that counts its own
// steps, and not the loop's.
func TestWorkThatEndsAtDifferentExchangesEndsWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newCamp(t, 1, Config{Every: 5}, 20)
		m.most = 1
		m.start()
		m.start().early = 10
		m.form()
		m.all.Wait()
		require.Empty(t, m.ended)
		require.Len(t, m.failed, 2)
		require.ErrorIs(t, m.failed[0], ErrApart)
	})
}

// TestWhoWasNotInAnExchangeKeepsWhatItHasMadeSince has one of three away from its group for an
// exchange that it has not begun.
func TestWhoWasNotInAnExchangeKeepsWhatItHasMadeSince(t *testing.T) {
	w := newWorld(t, 3, 3, Config{Every: 4, LR: 1, Momentum: optim.Zero})
	for step := 1; step <= 3; step++ {
		require.Equal(t, make([]error, 3), w.step(w.first(3), step))
	}
	first := w.loops[2].parts[0].anchor
	own, err := w.loops[2].values(w.loops[2].parts[0])
	require.NoError(t, err)
	away := w.loops[2]
	require.NoError(t, w.gs[2].Close())
	w.each([]int{0, 1}, func(r int) (err error) {
		if w.gs[r], err = w.gs[r].Without(t.Context(), "worker2"); err != nil {
			return err
		}
		return w.loops[r].Regroup(t.Context(), w.gs[r])
	})
	require.Equal(t, make([]error, 2), w.step([]int{0, 1}, 4))
	require.EqualValues(t, 1, w.loops[0].Rounds())
	w.each(w.first(3), func(r int) (err error) {
		if r == 2 {
			w.gs[2], err = collective.Enlist(t.Context(), w.ws[2], "outer")
		} else {
			w.gs[r], err = w.gs[r].With(t.Context(), "worker2")
		}
		if err != nil {
			return err
		}
		return w.loops[r].Regroup(t.Context(), w.gs[r])
	})
	w.requireSame(0, 1, 2)
	now, err := away.values(away.parts[0])
	require.NoError(t, err)
	for i, anchor := range away.parts[0].anchor {
		require.InDelta(t, anchor+own[i]-first[i], now[i], 1e-5)
	}
	for step := 5; step <= 8; step++ {
		require.Equal(t, make([]error, 3), w.step(w.first(3), step))
	}
	require.Equal(t, []float64{4, 4, 7}, away.Last().Weights)
	w.requireSame(0, 1, 2)
}

// disturb has some processes train, and things happen to them.
func (m *camp) disturb() {
	for range 2 + int(m.draw(3)) {
		m.start()
	}
	m.form()
	time.Sleep(m.draw(time.Second))
	for range 2 + int(m.draw(5)) {
		soon := m.draw(300 * time.Millisecond) // agents need that long to see it
		switch m.draw(5) {
		case 0, 1:
			if m.slay(anybody) != nil {
				m.start()
				time.AfterFunc(soon, m.form)
			}
		case 2:
			if m.running() > 1 && m.slay(anybody) != nil {
				time.AfterFunc(4*soon, m.form)
			}
		case 3:
			if m.running() < 5 && m.running() > 0 {
				m.start()
				m.form()
			}
		case 4:
			m.part()
		}
		if m.draw(3) == 0 {
			time.Sleep(m.draw(50 * time.Millisecond)) // while that is mended
		} else {
			time.Sleep(m.draw(2 * time.Second))
		}
	}
}

// part cuts two processes off from each other for a time that may be a loss.
func (m *camp) part() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.procs) < 2 || len(m.ended) > 0 {
		return
	}
	i := m.r.Perm(len(m.procs))
	a, b := m.procs[i[0]].host, m.procs[i[1]].host
	m.net.Cut(a, b)
	time.AfterFunc(time.Duration(m.r.IntN(3000))*time.Millisecond, func() { m.net.Heal(a, b) })
}
