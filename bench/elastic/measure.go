package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"time"
)

// measureEnd measures a job whose workers end at once, from launch to the end of the last agent.
func (b *bench) measureEnd(c context.Context, s shape) (err error) {
	began := time.Now()
	j, err := b.start(c, s, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.cleanUp()) }()
	if err := j.wait(); err != nil {
		return err
	}
	took := time.Since(began)
	ranks := map[int]bool{}
	for range j.world {
		w, err := j.nextSighting()
		if err != nil {
			return err
		}
		ranks[w.rank] = true
	}
	if len(ranks) != j.world || len(j.seen) > 0 {
		return fmt.Errorf("expected %d ranks to run once, got %v and %d more", j.world, ranks, len(j.seen))
	}
	b.emit("end/"+s.String(), took)
	if most := fmt.Sprintf("1:%d", s.agents+1); s.nnodes == most { // it has waited for more as long as it was to, whatever the launcher
		b.emit("end-but-last-call/"+s.String(), took-time.Duration(s.lastCall)*time.Second)
	}
	return nil
}

// replace measures from kill -9 of a worker until there is another in its place, and until as many
// run as before.
func (b *bench) replace(c context.Context, s shape) (err error) {
	j, err := b.start(c, s, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.cleanUp()) }()
	live := map[int]int{} // process by rank
	for len(live) < j.world {
		w, err := j.nextSighting()
		if err != nil {
			return err
		}
		if w.gone {
			return fmt.Errorf("worker %d ended before it was told to", w.rank)
		}
		live[w.rank] = w.pid
	}
	before := map[int]int{}
	for rank, pid := range live {
		before[rank] = pid
	}
	time.Sleep(b.settle + rand.N(100*time.Millisecond)) // any moment of a launcher that looks each tenth of a second
	victim := rand.IntN(j.world)
	killed := time.Now()
	p, err := os.FindProcess(before[victim])
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		return err
	}
	kept := func() (n int) {
		for rank, pid := range live {
			if before[rank] == pid {
				n++
			}
		}
		return n
	}
	var replaced, whole time.Duration
	for whole == 0 || b.group && kept() > 0 { // some may be replaced before others have ended
		w, err := j.nextSighting()
		switch {
		case err != nil:
			return err
		case w.gone && live[w.rank] == w.pid:
			delete(live, w.rank)
		case !w.gone:
			live[w.rank] = w.pid
			if w.rank == victim {
				replaced = w.at.Sub(killed)
			}
			if len(live) == j.world && replaced > 0 {
				whole = w.at.Sub(killed)
			}
		}
	}
	if n, want := kept(), b.keeps(j.world); n != want {
		return fmt.Errorf("expected %d of %d workers to keep their processes, got %d: %v before, %v after", want, j.world, n, before, live)
	}
	j.dismiss()
	if err := j.wait(); err != nil {
		return err
	}
	b.emit("replace/"+s.String(), replaced)
	b.emit("whole/"+s.String(), whole)
	return nil
}

// keeps is how many workers keep their processes when one of them is lost.
func (l launcher) keeps(world int) int {
	if l.group {
		return 0
	}
	return world - 1
}

// alone measures as many workers at once as a job of one agent has, with no launcher: what is in
// every launch.
func (b *bench) alone(c context.Context, s shape) error {
	w, err := newWitness(false)
	if err != nil {
		return err
	}
	defer w.dismiss()
	began, ends := time.Now(), make(chan error)
	n := s.agents * perAgent
	for rank := range n {
		cmd := exec.CommandContext(c, b.worker[0], b.worker[1:]...)
		cmd.Env = append(os.Environ(), witnessVariable+"="+w.l.Addr().String(), fmt.Sprintf("RANK=%d", rank))
		go func() { ends <- cmd.Run() }()
	}
	for range n {
		err = errors.Join(err, <-ends)
	}
	if err == nil {
		b.emit(fmt.Sprintf("alone/workers=%d", n), time.Since(began))
	}
	return err
}
