//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// job is members that are busy with one another, and others that come and go.
type job struct {
	calls atomic.Int64
	end   context.CancelFunc
	under sync.WaitGroup
	close func() error

	mu    sync.Mutex
	dials []time.Duration // of the others
	err   error
}

// startCalls runs calls, each again and again, and come, which says how long a newcomer took to
// reach what is flooded.
func (j *job) startCalls(c context.Context, calls []func(context.Context) error, come func(context.Context) (time.Duration, error)) {
	for _, call := range calls {
		j.under.Go(func() {
			for c.Err() == nil {
				if err := call(c); err == nil {
					j.calls.Add(1)
				} else if c.Err() == nil {
					j.fail(err)
				}
			}
		})
	}
	j.under.Go(func() {
		for c.Err() == nil {
			took, err := come(c)
			if err != nil && c.Err() == nil {
				j.fail(fmt.Errorf("one that joins: %w", err))
			}
			j.mu.Lock()
			j.dials = append(j.dials, took)
			j.mu.Unlock()
			select {
			case <-time.After(200 * time.Millisecond):
			case <-c.Done():
			}
		}
	})
}

func (j *job) fail(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = err
	}
	j.end()
}

// window is what a job did while something else went on.
type window struct {
	calls     float64 // a second
	own       float64 // seconds of processor time that the job had for each
	wall, cpu float64 // seconds that the other thing took, and of processor time that it had
	dials     []time.Duration
}

// watch counts while do runs.
func (j *job) watch(do func() (wall, cpu float64, err error)) (w window, err error) {
	j.mu.Lock()
	first := len(j.dials)
	j.mu.Unlock()
	spent, err := processor()
	if err != nil {
		return w, err
	}
	before, from := j.calls.Load(), time.Now()
	w.wall, w.cpu, err = do()
	calls := float64(j.calls.Load() - before)
	w.calls = calls / time.Since(from).Seconds()
	now, errNow := processor()
	w.own = (now - spent) / max(calls, 1)
	j.mu.Lock()
	defer j.mu.Unlock()
	w.dials = slices.Clone(j.dials[first:])
	return w, errors.Join(err, errNow, j.err)
}

func (j *job) stop() error {
	j.end()
	j.under.Wait()
	return errors.Join(j.err, j.close())
}
