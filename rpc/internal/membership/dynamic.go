package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-project/weft/rpc/internal/roster"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// JoinDynamic joins a world that workers come to and leave while others run.
func (ms *Members) JoinDynamic(c context.Context, me roster.Member, mayCome func(from int) (int, error), become func(roster.Member) error) error {
	v, err := ms.vouchOpen(c, me.Incarnation)
	if err != nil {
		return err
	}
	if err := ms.joinOpen(c, me, mayCome, become, v); err != nil {
		v.Close()
		return err
	}
	return nil
}

// vouchOpen links with a member of a dynamic world, and with none where there is none. Who is in
// the store may have died, and another may have come while it was dialled: so the store is asked
// again until it names nobody who has not been.
func (ms *Members) vouchOpen(c context.Context, incarnation uint64) (voucher, error) {
	tried := map[uint64]bool{}
	var errs []error
	for {
		there, lost, err := ms.inOpen(c)
		if err != nil {
			return voucher{}, err
		}
		if n := uint64(len(there)); n > 0 { // not the same one for all
			i := incarnation >> 32 % n
			there = slices.Concat(there[i:], there[:i])
		}
		ask := slices.DeleteFunc(slices.Concat(there, lost), func(m *roster.Member) bool { return tried[m.Incarnation] })
		switch {
		case len(ask) > 0:
		case len(there) > 0:
			return voucher{}, fmt.Errorf("none of the workers in the store answers; where they are gone for good, the job needs another prefix: %w", errors.Join(errs...))
		default:
			return voucher{}, nil
		}
		v, err := ms.Vouch(c, ask)
		if err == nil || errors.Is(err, transport.ErrIdentity) {
			return v, err
		}
		errs = append(errs, err)
		for _, m := range ask {
			tried[m.Incarnation] = true
		}
	}
}

// inOpen is who the store says is in a dynamic world, and who was.
func (ms *Members) inOpen(c context.Context) (there, lost []*roster.Member, err error) {
	if there, lost, err = ms.Registry.scan(c); err != nil {
		return nil, nil, err
	}
	first, err := ms.Registry.recordOf(c, 0)
	if err != nil {
		return nil, nil, err
	}
	if first.Member != nil && !first.lost && first.World != 0 { // a static world has no bound of ranks
		there = append(there, first.Member)
	}
	for _, m := range there {
		if m.World != 0 {
			return nil, nil, fmt.Errorf("%w: this worker was told of %s, %s of %s", ErrWorldSize, worldText(0), m.Name, worldText(m.World))
		}
	}
	return there, lost, nil
}

// joinOpen takes a place and links with the others. Of two newcomers, who claims its rank later
// sees the other.
func (ms *Members) joinOpen(c context.Context, me roster.Member, mayCome func(from int) (int, error), become func(roster.Member) error, v voucher) error {
	var err error
	if me.Incarnation, err = ms.Registry.NewIncarnation(c); err != nil { // others may have come and gone since
		return err
	}
	if err := ms.Registry.claimAny(c, &me, mayCome); err != nil {
		return err
	}
	if err := become(me); err != nil {
		return err
	}
	members, _, err := ms.Registry.scan(c)
	if err != nil {
		return err
	}
	if err := checkMaps(members, false); err != nil {
		return err
	}
	return ms.linkUp(c, members, v)
}

// claimAny takes the rank that is wanted, or the lowest that is free and that mayCome gives, and
// the name.
func (g *Registry) claimAny(c context.Context, me *roster.Member, mayCome func(from int) (int, error)) error {
	named := me.Name != ""
	for rank := me.Rank; rank < MaxWorld; rank++ {
		var err error
		if rank, err = mayCome(rank); err != nil {
			return fmt.Errorf("%w: all that this worker may have: %w", ErrRankTaken, err)
		}
		mine := *me
		if mine.Rank = rank; !named {
			mine.Name = NameOf(rank)
		}
		if err := g.raise(c, rank); err != nil {
			return err
		}
		if at, err := g.recordOf(c, rank); me.Rank == 0 && err == nil && at.Member != nil && !at.lost {
			continue
		}
		err = g.takeBoth(c, &mine)
		for errors.Is(err, errOvertaken) {
			g.Unclaim()
			if mine.Incarnation, err = g.NewIncarnation(c); err == nil {
				err = g.takeBoth(c, &mine)
			}
		}
		if errors.Is(err, ErrRankTaken) && me.Rank == 0 && c.Err() == nil {
			continue
		}
		*me = mine
		return err
	}
	return fmt.Errorf("%w: all of them", ErrRankTaken)
}

// takeBoth takes a rank and a name of a dynamic world. One that joined later may have had them and
// left: of that nothing is in their keys.
func (g *Registry) takeBoth(c context.Context, me *roster.Member) error {
	g.mu.Lock()
	g.joining = me.Incarnation >> 32
	g.mu.Unlock()
	if err := g.takeRank(c, me); err != nil {
		return err
	}
	if err := g.takeName(c, me); err != nil {
		return err
	}
	left, err := g.lastLeft(c)
	if err == nil && left > me.Incarnation>>32 {
		err = errOvertaken
	}
	return err
}

// lastLeft is the highest number of a joining of which the worker has left.
func (g *Registry) lastLeft(c context.Context) (uint64, error) {
	have, err := g.raw(c, keyLeft)
	if err != nil || have == "" {
		return 0, err
	}
	n, err := strconv.ParseUint(have, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number of a joining", wire.ErrProtocol, have)
	}
	return n, nil
}

// noteLeft raises that number to one. 0 is none.
func (g *Registry) noteLeft(c context.Context, joining uint64) error {
	for joining > 0 {
		have, err := g.raw(c, keyLeft)
		if err != nil {
			return err
		}
		if n, err := strconv.ParseUint(have, 10, 64); err == nil && n >= joining {
			return nil
		}
		mine := strconv.FormatUint(joining, 10)
		if now, err := g.Store.CompareSet(c, keyLeft, []byte(have), []byte(mine)); err != nil || string(now) == mine {
			return err
		}
	}
	return nil
}

// raise makes sure that who reads all ranks reads this one.
func (g *Registry) raise(c context.Context, rank int) error {
	for {
		n, err := g.Store.Add(c, keyRanks, 0)
		if err != nil || n > int64(rank) {
			return err
		}
		if _, err = g.Store.Add(c, keyRanks, int64(rank)+1-n); err != nil {
			return err
		}
	}
}
