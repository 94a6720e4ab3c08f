package process

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// What the survivor may keep. Everything else must be as it was to the last one.
const (
	keptMemory     = 64 << 20 // bytes: arenas of Go's heap and pooled buffers
	keptGoroutines = 1        // the one that looks
)

// spell is how long a process mixes, and how much it may allocate for a tensor.
type spell struct {
	Seed     uint64
	MaxElems int
}

// spellDone says how many steps went well, and how the spell ended.
type spellDone struct {
	Steps int
	Wrong string // a result was wrong
	Other string // a call failed; expected where somebody was killed
}

// mix makes calls until one fails or the process is told to stop.
func (h *inhabitant) mix(c context.Context, in spell) (done spellDone, _ error) {
	c, stop := context.WithCancel(c)
	defer stop()
	h.stop.Store(&stop)
	mix := workload.Mix{W: h.m.Worker, Rand: mathrand.New(mathrand.NewPCG(in.Seed, 0)), MaxElems: in.MaxElems}
	for c.Err() == nil {
		err := mix.Step(c)
		switch {
		case errors.Is(err, workload.ErrWrong):
			done.Wrong = err.Error()
			return done, nil
		case err != nil && c.Err() == nil:
			done.Other = err.Error()
			return done, nil
		case err == nil:
			done.Steps++
		}
	}
	return done, nil
}

func (h *inhabitant) rest(context.Context, struct{}) (struct{}, error) {
	if stop := h.stop.Load(); stop != nil {
		(*stop)()
	}
	return struct{}{}, nil
}

// TestSoak mixes calls between four processes. Every few seconds one of them but this is killed
// while all are at it; the others must see nothing but the loss of it, and all join again. At the
// end this process, which was there all the time, must have what it had when the second round
// began. WEFT_SOAK is for how long, by default two rounds of half a second.
func TestSoak(t *testing.T) {
	leak.Check(t)
	length, round := time.Second, 500*time.Millisecond
	if v := os.Getenv("WEFT_SOAK"); v != "" {
		var err error
		length, err = time.ParseDuration(v)
		require.NoError(t, err)
		round = 5 * time.Second
	}
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	s := &soak{t: t, rand: mathrand.New(mathrand.NewPCG(uint64(time.Now().UnixNano()), 0)), round: round,
		place: workload.Place{Store: server.Addr(), Size: 4, Token: transport.NewToken()}}
	s.once() // fills pools, and starts what is started once
	s.fill()
	time.Sleep(time.Second) // until what is ending has ended: too little here would only ask more of the end
	before := s.rested()
	start := time.Now()
	for first := true; first || time.Since(start) < length; first = false {
		s.once()
	}
	s.fill() // a process more or less is pipes and a goroutine more or less here
	var after resources
	summary := func() string {
		return fmt.Sprintf("soak: %d rounds, %d steps, %d kills; before: %v; after: %v", s.rounds, s.steps, s.kills, before, after)
	}
	if !assert.Eventually(t, func() bool {
		after = s.rested()
		return after.leavesNothing(before) && after.Goroutines <= before.Goroutines+keptGoroutines && after.RSS <= before.RSS+keptMemory
	}, 15*time.Second, 100*time.Millisecond) {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
		t.Fatal(summary())
	}
	t.Log(summary())
}

// rested is what this process has when the collector has been through, here and at the others: a
// tensor of nobody's that was lent keeps its lender's connection until the borrower's collector
// finds it.
func (s *soak) rested() resources {
	s.t.Helper()
	for range 3 {
		runtime.GC()
		for _, p := range s.procs[1:] {
			assert.NoError(s.t, p.Ask(s.t.Context(), "look", nil, nil))
		}
	}
	debug.FreeOSMemory()
	r, err := resourcesNow()
	assert.NoError(s.t, err)
	return r
}

// soak is one world after another.
type soak struct {
	t                    *testing.T
	rand                 *mathrand.Rand
	place                workload.Place
	round                time.Duration
	rounds, steps, kills int
	procs                [4]*proctest.Proc
}

// once joins a world of four, mixes, kills one of the others in three rounds of four, and ends the
// world.
func (s *soak) once() {
	t := s.t
	s.rounds++
	c, cancel := context.WithTimeout(t.Context(), patience+s.round)
	defer cancel()
	s.place.World = fmt.Sprintf("%d/", s.rounds)
	here := s.join(c)
	results := make(chan spellDone, s.place.Size)
	in := spell{s.rand.Uint64(), 1 << 20}
	for _, p := range s.procs[1:] {
		go func() {
			var done spellDone
			if err := p.Ask(c, "mix", in, &done); err != nil && !errors.Is(err, proctest.ErrEnded) {
				done.Wrong = err.Error()
			}
			results <- done
		}()
	}
	go func() {
		done, _ := here.mix(c, in)
		results <- done
	}()
	time.Sleep(s.round) // it is for how long the round is; nothing waits for it
	killed := s.rand.IntN(4)
	if killed > 0 {
		s.procs[killed].Kill()
		s.kills++
	}
	_, _ = here.rest(c, struct{}{})
	for i, p := range s.procs[1:] {
		if i+1 != killed {
			require.NoError(t, p.Ask(c, "rest", nil, nil))
		}
	}
	for range s.procs {
		done := <-results
		require.Empty(t, done.Wrong)
		if killed == 0 {
			require.Empty(t, done.Other)
		} else if done.Other != "" {
			require.Contains(t, done.Other, fmt.Sprintf("worker%d", killed))
		}
		s.steps += done.Steps
	}
	s.leave(c, here, killed)
}

// fill starts who is not there.
func (s *soak) fill() {
	for i := 1; i < s.place.Size; i++ {
		if s.procs[i] == nil {
			s.procs[i] = proctest.Start(s.t, nil)
		}
	}
}

// join joins all.
func (s *soak) join(c context.Context) *inhabitant {
	errs := make(chan error, s.place.Size)
	s.fill()
	for i := 1; i < s.place.Size; i++ {
		p := s.place
		p.Rank = i
		go func() { errs <- s.procs[i].Ask(c, "join", p, nil) }()
	}
	here := new(inhabitant)
	_, err := here.join(c, s.place)
	require.NoError(s.t, err)
	for range s.place.Size - 1 {
		require.NoError(s.t, <-errs)
	}
	return here
}

// leave ends the world, in good order where nobody was killed.
func (s *soak) leave(c context.Context, here *inhabitant, killed int) {
	end := "leave"
	if killed > 0 {
		end = "close"
		s.procs[killed] = nil
	}
	errs := make(chan error, s.place.Size)
	for _, p := range s.procs {
		if p != nil {
			go func() { errs <- p.Ask(c, end, nil, nil) }()
		} else {
			errs <- nil
		}
	}
	if killed > 0 {
		require.NoError(s.t, here.m.Close())
	} else {
		_, err := here.leave(c, struct{}{})
		require.NoError(s.t, err)
	}
	for range s.place.Size {
		require.NoError(s.t, <-errs)
	}
}
