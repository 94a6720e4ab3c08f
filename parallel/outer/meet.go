package outer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel/internal/peers"
	"github.com/weft-project/weft/parallel/outer/internal/schedule"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Regroup goes on with another generation of the group, after a loss, a leave or a join. All
// members call it; newcomers call New meanwhile. Who has missed a result of which others have seen
// the effect gets it, with the momentum. It may be called again where it fails.
func (l *Loop) Regroup(c context.Context, g *collective.Group) error {
	if f := l.flight; f != nil { // on a group that has ended or been closed it ends soon
		_ = l.land(c) // others may have its result: then it comes from them
	}
	if err := l.meet(c, g, nil); err != nil {
		return fmt.Errorf("outer: Regroup: %w", err)
	}
	return nil
}

// brought is what a member tells the others when they come together.
type brought struct {
	Digest uint64 // of the configuration, and of the parameters' names and types
	Failed string // why it cannot take part
	Has    bool   // it is no newcomer
	ID     string // of its loop
	At     schedule.Position
	States []uint64 // by fragment
}

// meet brings the members of a group to one state and position. own is why this one cannot take
// part.
func (l *Loop) meet(c context.Context, g *collective.Group, own error) error {
	c = collective.Scope(c, scope)
	if own == nil && l.cfg.FirstCalls {
		own = l.posts.serve(g.Worker(), g.Name(), func(round uint64) {
			l.with(func(m *schedule.Machine) { m.Called(round) })
		})
	}
	list, mine := l.list(own)
	all, err := collective.Agree(c, g, mine)
	if err != nil {
		return errors.Join(own, err)
	}
	if err := l.compare(c, g, all, list, own); err != nil {
		return err
	}
	source, common := -1, schedule.Position{}
	var at []schedule.Position
	for _, b := range all {
		if b.Has {
			at = append(at, b.At)
		}
	}
	common = schedule.Common(at)
	for rank, b := range all {
		if b.Has && b.At.Round == common.Round && source < 0 {
			source = rank
		}
	}
	begins := source < 0
	if begins {
		if err := l.mayBegin(c); err != nil {
			return err
		}
	}
	spent := 0
	l.with(func(m *schedule.Machine) { spent = m.Spent(common) })
	if err := l.adopt(c, g, all, max(source, 0), spent, !begins); err != nil {
		return err
	}
	l.with(func(m *schedule.Machine) { m.Go(common) })
	l.know(g, all, begins)
	l.g, l.has = g, true
	return nil
}

// know notes who the members are now, and tells what has changed.
func (l *Loop) know(g *collective.Group, all []brought, begins bool) {
	now, change := map[string]string{}, Change{Round: l.Rounds(), Rank: g.Rank()}
	for rank, m := range g.Members() {
		b := all[rank]
		_, before := l.known[b.ID]
		if !begins && (!b.Has || l.has && !before) {
			change.Came = append(change.Came, m.Worker)
		}
		now[b.ID] = m.Worker
		change.Members = append(change.Members, m.Worker)
	}
	for id, name := range l.known {
		if _, there := now[id]; !there {
			change.Lost = append(change.Lost, name)
		}
	}
	slices.Sort(change.Lost)
	l.known = now
	if l.cfg.Changed != nil && len(change.Lost)+len(change.Came) > 0 {
		l.cfg.Changed(change)
	}
}

// list is what must be the same on all members, and what this one brings.
func (l *Loop) list(own error) (list []string, mine brought) {
	if own != nil {
		return nil, brought{Failed: own.Error()}
	}
	mine.Has, mine.ID = l.has, l.id
	l.with(func(m *schedule.Machine) { mine.At = m.Position() })
	list = l.cfg.alike()
	for i, p := range l.params {
		list = append(list, fmt.Sprintf("%s: %v", l.names[i], p.Type()))
	}
	digest := fnv.New64a()
	fmt.Fprintf(digest, "%q", list)
	mine.Digest = digest.Sum64()
	for _, f := range l.parts {
		mine.States = append(mine.States, f.state())
	}
	return list, mine
}

// compare fails on all members where one cannot take part, or is not like the others.
func (l *Loop) compare(c context.Context, g *collective.Group, all []brought, list []string, own error) error {
	differ, right := false, max(slices.IndexFunc(all, func(b brought) bool { return b.Has }), 0)
	for rank, b := range all {
		if b.Failed != "" {
			return blamed(rank != g.Rank(), peers.Failure(g, rank, b.Failed, own))
		}
		differ = differ || b.Digest != all[0].Digest || len(b.States) != len(all[0].States)
	}
	if !differ {
		return nil
	}
	lists, err := collective.Agree(c, g, list)
	if err != nil {
		return err
	}
	return blamed(all[right].Has && all[g.Rank()].Digest == all[right].Digest, peers.Difference(g, lists))
}

// adopt takes the fragments that differ from those of a member; with says that their momentum
// comes, too. Of spent what this worker has made is in the result already; with others it goes on
// from there. Nothing has changed where it fails.
func (l *Loop) adopt(c context.Context, g *collective.Group, all []brought, source, spent int, with bool) error {
	var fs []*fragment
	var anchors, momenta, values [][]float32
	for k, f := range l.parts {
		wanted := false
		for _, b := range all {
			wanted = wanted || b.States[k] != all[source].States[k]
		}
		if !wanted {
			continue
		}
		x, n := append([]float32{}, f.anchor...), len(f.anchor)
		if with {
			x = append(x, f.momentum...)
		}
		if err := collective.Broadcast(c, g, x, source); err != nil {
			return err
		}
		if all[g.Rank()].States[k] == all[source].States[k] {
			continue
		}
		value := x[:n]
		if l.has {
			own, err := l.values(f)
			if err != nil {
				return err
			}
			if k == spent {
				value = mixed(own, value, float32(l.cfg.Mix))
			} else {
				value = moved(own, f.anchor, value)
			}
		}
		if !with {
			x = append(x, f.momentum...)
		}
		fs, values, anchors, momenta = append(fs, f), append(values, value), append(anchors, x[:n]), append(momenta, x[n:])
	}
	if err := l.assign(fs, values); err != nil {
		return err
	}
	for k, f := range fs {
		f.anchor, f.momentum = anchors[k], momenta[k]
		if f.wire != nil { // what it owed has been counted, but for a rounding
			f.wire.Reset()
		}
	}
	return nil
}

// posts are the calls of who is first, and to it.
type posts struct {
	w    *rpc.Worker // which serves them; nil: none
	name string
	stop func()
	out  sync.WaitGroup
}

// patience is how long a call is tried; who cannot be reached for longer is lost.
const patience = 10 * time.Second

// serve takes the calls of other members, from now on of that worker's.
func (p *posts) serve(w *rpc.Worker, group string, called func(round uint64)) (err error) {
	if p.w == w {
		return nil
	}
	p.close()
	p.name = "outer/" + group
	p.stop, err = rpc.OnPost(w, p.name, func(_ rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
		(&transport.Message{Tensors: tensors}).Release() // there are none, where the sender is of the job
		if len(header) == 8 {
			called(binary.LittleEndian.Uint64(header))
		}
	})
	if err == nil {
		p.w = w
	}
	return err
}

// call tells the other members that an exchange has begun.
func (p *posts) call(g *collective.Group, round uint64) {
	header := binary.LittleEndian.AppendUint64(nil, round)
	for rank, m := range g.Members() {
		if rank == g.Rank() {
			continue
		}
		p.out.Go(func() {
			c, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			_ = rpc.Post(c, g.Worker(), m.Worker, p.name, header) // who cannot be reached is lost: the exchange says so
		})
	}
}

func (p *posts) close() {
	if p.w != nil {
		p.stop()
		p.w = nil
	}
	p.out.Wait()
}
