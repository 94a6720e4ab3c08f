package rpc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/rpc/roster"
	"github.com/weft-project/weft/transport"
)

// joinDynamic joins a world that workers come to and leave while others run.
func (w *Worker) joinDynamic(c context.Context, me roster.Member, p *prepared) error {
	there, lost, err := w.scan(c)
	if err != nil {
		return err
	}
	first, err := w.recordOf(c, 0)
	if err != nil {
		return err
	}
	if first.Member != nil && !first.lost && first.World != 0 { // a static world has no bound of ranks
		there = append(there, first.Member)
	}
	for _, m := range there {
		if m.World != 0 {
			return fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(0), m.Name, worldText(m.World))
		}
	}
	if n := uint64(len(there)); n > 0 { // not the same one for all
		i := me.Incarnation >> 32 % n
		there = slices.Concat(there[i:], there[:i])
	}
	v, err := w.vouch(c, slices.Concat(there, lost))
	if err != nil && (len(there) > 0 || errors.Is(err, transport.ErrIdentity)) {
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
	if err := w.become(me, p); err != nil {
		return err
	}
	members, _, err := w.scan(c)
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
		mine := *me
		if mine.Rank = rank; !named {
			mine.Name = fmt.Sprintf("worker%d", rank)
		}
		if err := w.raise(c, rank); err != nil {
			return err
		}
		if r, err := w.recordOf(c, rank); me.Rank == 0 && err == nil && r.Member != nil && !r.lost {
			continue
		}
		err := w.takeRank(c, &mine)
		if errors.Is(err, ErrRankTaken) && me.Rank == 0 && c.Err() == nil {
			continue
		}
		if err == nil {
			err = w.takeName(c, &mine)
		}
		*me = mine
		return err
	}
	return fmt.Errorf("%w: all of them", ErrRankTaken)
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
