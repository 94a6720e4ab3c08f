package rpc

import (
	"context"
	"fmt"
	"slices"

	"github.com/weft-project/weft/rpc/roster"
)

// joinDynamic joins a world that workers come to and leave while others run.
func (w *Worker) joinDynamic(c context.Context, me roster.Member, p *prepared) error {
	there, err := w.scan(c)
	if err != nil {
		return err
	}
	if first, _, err := w.recordOf(c, 0); err != nil {
		return err
	} else if first != nil {
		there = append(there, first)
	}
	for _, m := range there {
		if m.World != 0 {
			return fmt.Errorf("%w: this worker was told %s, %s %d", ErrWorldSize, worldText(0), m.Name, m.World)
		}
	}
	v, err := w.vouch(c, there)
	if err != nil {
		return fmt.Errorf("none of the workers in the store answers; where they are gone for good, the job needs another prefix: %w", err)
	}
	if err := w.joinOpen(c, me, p, v); err != nil {
		v.close()
		return err
	}
	return nil
}

// joinOpen takes a place and links with the others. Of two newcomers, who claims its rank later sees the other.
func (w *Worker) joinOpen(c context.Context, me roster.Member, p *prepared, v voucher) error {
	if err := w.claimAny(c, &me); err != nil {
		return err
	}
	w.become(me, p.Timeout)
	members, err := w.scan(c)
	if err != nil {
		return err
	}
	if err := checkMaps(members, false); err != nil {
		return err
	}
	return w.linkUp(c, members, v)
}

// claimAny takes the rank that is wanted, or the lowest that is free, and the name.
func (w *Worker) claimAny(c context.Context, me *roster.Member) error {
	named := me.Name != ""
	for rank := me.Rank; rank < maxWorld; rank++ {
		if err := w.raise(c, rank); err != nil {
			return err
		}
		if me.Rank == 0 {
			if have, err := w.peek(c, rankKey(rank)); err != nil {
				return err
			} else if have != "" {
				continue
			}
		}
		mine := *me
		mine.Rank = rank
		if !named {
			mine.Name = fmt.Sprintf("worker%d", rank)
		}
		taken, err := w.tryRank(c, &mine, me.Rank > 0)
		if err != nil {
			return err
		}
		if !taken {
			continue
		}
		*me = mine
		return w.takeName(c, me)
	}
	return fmt.Errorf("%w: all of them", ErrRankTaken)
}

// tryRank takes a rank; where any will do, it says whether it got it.
func (w *Worker) tryRank(c context.Context, me *roster.Member, only bool) (bool, error) {
	if only {
		return true, w.takeRank(c, me)
	}
	raw, err := encode(me)
	if err != nil {
		return false, err
	}
	have, err := w.store.CompareSet(c, rankKey(me.Rank), nil, raw)
	if err != nil || !slices.Equal(have, raw) {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claims = append(w.claims, claim{rankKey(me.Rank), string(raw)})
	return true, nil
}

// raise makes sure that who reads all ranks reads this one.
func (w *Worker) raise(c context.Context, rank int) error {
	for {
		n, err := w.store.Add(c, keyRanks, 0)
		if err != nil || n > int64(rank) {
			return err
		}
		if _, err = w.store.Add(c, keyRanks, int64(rank)+1-n); err != nil {
			return err
		}
	}
}
