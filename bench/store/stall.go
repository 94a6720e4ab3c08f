package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// stall measures an add alone and beside clients that have sent half a command, in turns.
func (b *bench) stall(c context.Context, server *process) error {
	s, err := dial(c, server.addr)
	if err != nil {
		return err
	}
	defer s.Close()
	var with, without []time.Duration
	for range b.turns {
		mid, err := b.adding(c, s.Add)
		if err != nil {
			return err
		}
		without = append(without, mid)
		all, err := crowd(c, server.addr, b.stalled, half())
		if err == nil {
			mid, err = b.adding(c, s.Add)
		}
		all.closeAll()
		if err != nil {
			return err
		}
		with = append(with, mid)
	}
	tell := func(stalled int, mids []time.Duration) {
		slices.Sort(mids)
		mid, n := mids[len(mids)/2], b.sizes.trips*b.turns
		b.emit(b.lane, fmt.Sprintf("add/stalled=%d", stalled), n, mid*time.Duration(n), micros(mid), "p50-µs")
	}
	tell(0, without)
	tell(b.stalled, with)
	return nil
}

func (b *bench) adding(c context.Context, add func(context.Context, string, int64) (int64, error)) (time.Duration, error) {
	return median(b.sizes.trips, func() error { _, err := add(c, "n", 1); return err })
}
