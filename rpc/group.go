package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// AllGather gives every worker of a group the values of all, by name. Each of them must call it,
// with the same names (or [Rank]s) in any order; without names the group is all workers of a static
// world (in a dynamic one names are needed). Values travel as arguments do, but hold neither
// tensors nor references.
//
// A worker that takes part in several gatherings of one group must do so in the same order as the
// others. When the deadline passes, or c is cancelled, the error names who has not come; whoever
// comes later finds nobody and fails at its own deadline, and the next gathering works again.
func AllGather[T any](c context.Context, value T, names ...string) (map[string]T, error) {
	return Meet(c, "", value, names...)
}

// Meet is [AllGather] for a purpose that has a name. Gatherings of one group with different names
// need no order.
func Meet[T any](c context.Context, name string, value T, names ...string) (map[string]T, error) {
	w, err := from(c)
	if err != nil {
		return nil, fmt.Errorf("all-gather: %w", err)
	}
	cd, err := forms.For(reflect.TypeFor[T]())
	if err == nil && !cd.Plain() {
		err = fmt.Errorf("%w: a %v holds tensors or references, which a gathering does not carry", ErrArguments, cd.Type())
	}
	var raw []byte
	if err == nil {
		raw, err = wire.Encode(value)
	}
	var all map[string][]byte
	if err == nil {
		all, err = w.gather(c, name, raw, names)
	}
	out := make(map[string]T, len(all))
	for name, raw := range all {
		var v T
		if derr := wire.Decode(raw, &v); derr != nil {
			err = errors.Join(err, fmt.Errorf("the value of %s: %w", name, derr))
		}
		out[name] = v
	}
	if err != nil {
		return nil, w.wrap("", "all-gather", err)
	}
	return out, nil
}

// Barrier waits until every worker of a group has come to it; see [AllGather].
func Barrier(c context.Context, names ...string) error {
	_, err := AllGather(c, struct{}{}, names...)
	return err
}

// gathering is what a worker brings to the leader of its group: the first by name.
type gathering struct {
	Key      string        // the group, and how often it has gathered before
	Names    []string      // sorted
	From     string        // who brings the value
	Patience time.Duration // for how long it waits; 0: for as long as the call does
	Value    []byte
}

var gather = DefineAsync("weft.gather", func(c context.Context, in gathering) (*Future[map[string][]byte], error) {
	w, err := from(c)
	if err != nil {
		return nil, err
	}
	return w.groups.join(c, in)
})

// gather brings this worker's value to the leader.
func (w *Worker) gather(c context.Context, name string, value []byte, names []string) (map[string][]byte, error) {
	if len(names) == 0 && w.world == 0 {
		return nil, fmt.Errorf("%w: in a world in which workers come and go, a group needs names", ErrArguments)
	}
	if len(names) == 0 {
		for _, info := range w.Workers() {
			names = append(names, info.Name)
		}
	}
	group := make([]*membership.Peer, len(names))
	for i, name := range names {
		p, err := w.members.Lookup(c, name)
		if err == nil {
			err = p.Lost()
		}
		if err != nil {
			return nil, err
		}
		group[i] = p
	}
	slices.SortFunc(group, func(a, b *membership.Peer) int { return strings.Compare(a.Name, b.Name) })
	names = nil
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", name)
	for i, p := range group {
		if i > 0 && group[i-1] == p {
			return nil, fmt.Errorf("%w: %s is twice in the group", ErrArguments, p.Name)
		}
		names = append(names, p.Name)
		fmt.Fprintf(sum, "%s %v\n", p.Name, p.Node) // who came back under an old name makes another group
	}
	if !slices.Contains(names, w.name) {
		return nil, fmt.Errorf("%w: this worker is not of the group %v", ErrArguments, names)
	}
	in := gathering{Key: w.groups.nextKey(fmt.Sprintf("%x", sum.Sum(nil))), Names: names, From: w.name, Value: value}
	c, cancel := w.deadline(c)
	if cancel != nil {
		defer cancel()
	}
	if at, has := c.Deadline(); has { // a little less, so that the leader's error, which has the names, comes in time
		left := time.Until(at)
		in.Patience = max(left-min(left/10, 200*time.Millisecond), 1)
	}
	return gather.Call(c, names[0], in)
}

// maxGatherings bounds the gatherings that wait at a leader.
const maxGatherings = 4096

// groups is a worker's part in gatherings: how often it took part in each group's, and those that
// it leads.
type groups struct {
	mu    sync.Mutex
	times map[string]uint64
	open  map[string]*attendance // by key
}

// attendance is who has come to a gathering that is not complete.
type attendance struct {
	here map[string]*participant // by name
	left []string                // who has come, and has given up
}

type participant struct {
	value   []byte
	promise *Promise[map[string][]byte]
}

// nextKey is the key of the group's next gathering.
func (g *groups) nextKey(group string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.times == nil {
		g.times = map[string]uint64{}
	}
	g.times[group]++
	return fmt.Sprintf("%s/%d", group, g.times[group])
}

// join takes a participant in, and gives all the values when the last has come.
func (g *groups) join(c context.Context, in gathering) (*Future[map[string][]byte], error) {
	if !slices.Contains(in.Names, in.From) {
		return nil, fmt.Errorf("%w: %s is not of the group %v", ErrArguments, in.From, in.Names)
	}
	me := &participant{in.Value, NewPromise[map[string][]byte]("a gathering")}
	all, err := g.gather(in, me)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		values := make(map[string][]byte, len(all))
		for name, p := range all {
			values[name] = p.value
		}
		_ = p.promise.Resolve(values) // who has given up meanwhile needs it no more
	}
	g.bound(c, in, me)
	return me.promise.Future(), nil
}

// gather adds a participant. It returns all of them when the last has come.
func (g *groups) gather(in gathering, me *participant) (map[string]*participant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil {
		g.open = map[string]*attendance{}
	}
	at := g.open[in.Key]
	switch {
	case at == nil && len(g.open) >= maxGatherings:
		return nil, fmt.Errorf("%w: %d gatherings wait here", ErrBusy, len(g.open))
	case at == nil:
		at = &attendance{here: map[string]*participant{}}
		g.open[in.Key] = at
	case at.here[in.From] != nil:
		return nil, fmt.Errorf("%w: %s has come to this gathering before", ErrArguments, in.From)
	}
	at.here[in.From] = me
	if len(at.here) < len(in.Names) {
		return nil, nil
	}
	delete(g.open, in.Key)
	return at.here, nil
}

// bound lets a participant give up when its patience, or its call, ends.
func (g *groups) bound(c context.Context, in gathering, me *participant) {
	giveUp := func(cause error) {
		if why := g.withdraw(in, me); why != "" {
			_ = me.promise.Fail(fmt.Errorf("%w: %s", cause, why))
		}
	}
	stop := context.AfterFunc(c, func() { giveUp(ctx.AsTimeout(context.Cause(c))) })
	var timer *time.Timer
	if in.Patience > 0 {
		timer = time.AfterFunc(in.Patience, func() { giveUp(ErrTimeout) })
	}
	me.promise.Future().OnDone(func(map[string][]byte, error) {
		stop()
		if timer != nil {
			timer.Stop()
		}
	})
}

// withdraw takes a participant out and says who was missing; nothing where the gathering is over.
func (g *groups) withdraw(in gathering, me *participant) (why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.open[in.Key]
	if at == nil || at.here[in.From] != me {
		return ""
	}
	var missing []string
	for _, name := range in.Names {
		if at.here[name] == nil && !slices.Contains(at.left, name) {
			missing = append(missing, name)
		}
	}
	var parts []string
	if len(missing) > 0 {
		parts = append(parts, "these workers have not come: "+strings.Join(missing, ", "))
	}
	if len(at.left) > 0 {
		parts = append(parts, "these have come, and given up: "+strings.Join(at.left, ", "))
	}
	at.left = append(at.left, in.From)
	if delete(at.here, in.From); len(at.here) == 0 {
		delete(g.open, in.Key)
	}
	return strings.Join(parts, "; ")
}
