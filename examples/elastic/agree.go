package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weft-project/weft/elastic/checkpoint"
	"github.com/weft-project/weft/rpc"
)

// having is what a worker tells the others at the beginning of an epoch.
type having struct {
	Step   int // at which it has Params; -1: it has none
	Params []int
	Saved  []int64 // steps of which there is a checkpoint
	history
	Why   string        // what has changed for it
	Still time.Duration // since its work stopped; 0: it has just come
	Known time.Duration // since it was told of this epoch
}

// plan is where training goes on.
type plan struct {
	step int
	from map[int]int // rank of a worker that has a parameter at that step; empty where they come from a checkpoint
}

// plan is the same on all workers: the highest step of which all parameters can be had, from those
// who have them or else from a checkpoint that all can read; else the beginning. all is by rank.
func choose(all []having, params int) plan {
	best := plan{from: map[int]int{}}
	for _, step := range all[0].Saved {
		everywhere := !slices.ContainsFunc(all, func(h having) bool { return !slices.Contains(h.Saved, step) })
		if everywhere && int(step) > best.step {
			best.step = int(step)
		}
	}
	live := map[int]map[int]int{} // by step
	for rank, h := range all {
		if live[h.Step] == nil {
			live[h.Step] = map[int]int{}
		}
		for _, k := range h.Params {
			if _, there := live[h.Step][k]; !there {
				live[h.Step][k] = rank
			}
		}
	}
	for step, from := range live {
		if step >= best.step && len(from) == params {
			best = plan{step, from}
		}
	}
	return best
}

// agree settles with all others where to go on, and gets this worker's share of the parameters.
// Until all have theirs, everybody keeps what it had.
func (e *epoch) agree(c context.Context) error {
	h := having{Step: e.has.step, history: e.has.history, Why: e.Change(e.last), Known: time.Since(e.Told)}
	for k := range e.has.params {
		h.Params = append(h.Params, k)
	}
	if !e.stopped.IsZero() {
		h.Still = time.Since(e.stopped)
	}
	var err error
	if h.Saved, err = e.readable(); err != nil {
		return err
	}
	p, next, all, err := e.choosePlan(c, h)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.now = next
	e.mu.Unlock()
	close(e.ready)
	e.resumed(p, all)
	return nil
}

// choosePlan finds where to go on: a checkpoint of which somebody cannot read what it needs is
// passed over by all.
func (e *epoch) choosePlan(c context.Context, h having) (p plan, next shard, all []having, err error) {
	for {
		if all, err = gather(c, e.World, h); err != nil {
			return p, next, all, err
		}
		p = choose(all, e.count)
		next, err = e.collect(c, p, all)
		corrupt := errors.Is(err, checkpoint.ErrCorrupt)
		if err != nil && !corrupt {
			return p, next, all, err
		}
		if corrupt {
			e.out.refused(int64(p.step), err)
		}
		refused, err := gather(c, e.World, corrupt) // then nobody asks any more for what this worker had
		if err != nil || !slices.Contains(refused, true) {
			return p, next, all, err
		}
		h.Saved = slices.DeleteFunc(h.Saved, func(step int64) bool { return step == int64(p.step) })
	}
}

// gather is what every worker tells all, by rank.
func gather[T any](c context.Context, world int, own T) ([]T, error) {
	byName, err := rpc.AllGather(c, own)
	all := make([]T, world)
	for rank := range all {
		all[rank] = byName[workerName(rank)]
	}
	return all, err
}

// readable are the steps of which there is a checkpoint that can be opened: whoever wrote the
// newest may have had a disk that was full.
func (t *trainer) readable() (steps []int64, err error) {
	all, err := t.saved.Steps()
	for _, step := range all {
		k, err := t.saved.At(step)
		if err != nil {
			t.out.refused(step, err)
			continue // there may be an older one
		}
		steps = append(steps, step)
		_ = k.Close() // nothing was read
	}
	return steps, err
}

// collect gets this worker's share.
func (e *epoch) collect(c context.Context, p plan, all []having) (next shard, err error) {
	next = shard{step: p.step, params: map[int]*param{}}
	longest := slices.MaxFunc(all, func(a, b having) int { return cmp.Compare(len(a.Losses), len(b.Losses)) })
	next.history = longest.history
	var from *checkpoint.Checkpoint
	if len(p.from) == 0 && p.step > 0 {
		if from, err = e.saved.At(int64(p.step)); err != nil {
			return next, err
		}
		defer from.Close() //nolint:errcheck // it was only read
		if len(next.Losses) < p.step {
			if next.history, err = readHistory(from); err != nil {
				return next, err
			}
		}
	}
	next.Losses = slices.Clip(next.Losses[:p.step])
	first := e.firstParams()
	for k := e.Rank; k < len(first); k += e.World {
		rank, live := p.from[k]
		switch {
		case live && rank == e.Rank:
			next.params[k] = e.has.params[k]
		case live:
			var m moving
			if m, err = e.move.Call(c, workerName(rank), k); err == nil {
				next.params[k], err = newParam(e.rule(), k, m.Value, &m.State)
			}
		case from != nil:
			next.params[k], err = readParam(e.rule(), from, k, first[k].Shape())
		default:
			next.params[k], err = newParam(e.rule(), k, first[k], nil)
		}
		if err != nil {
			return next, fmt.Errorf("parameter %d: %w", k, err)
		}
	}
	return next, nil
}

// moved is a parameter that this worker has had until now.
func (e *epoch) moved(_ context.Context, k int) (m moving, err error) {
	if p := e.has.params[k]; p != nil {
		return p.move()
	}
	return m, fmt.Errorf("parameter %d is not here", k)
}
