package collective

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
)

// Way is one by which buffers are reduced where they lie, without the host's memory.
// Package gpus has some. It is safe for concurrent use.
type Way interface {
	// Name tells the ways of a group apart, and is the same on all members.
	Name() string
	// Takes says whether this member can reduce such buffers by it.
	Takes(op Op, d device.Dtype, bufs []*device.Buffer) bool
	// Reduce does so. All members call it, with what all take: there are buffers, of elements, the
	// work that wrote them is done, and nobody else uses them. Operations of the group that it needs
	// are parts of in. Where it fails the buffers are as they were.
	Reduce(c context.Context, in *Compound, op Op, d device.Dtype, bufs []*device.Buffer) error
}

// hostWay is the way that is always there.
const hostWay = "host"

// Offer gives the group a way. All members do, between the same operations of the group. From then
// on each AllReduceBuffers goes by the first way of rank 0's that all members take. To withdraw it,
// a member just stops taking.
func (g *Group) Offer(w Way) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ways, g.offered = append(slices.Clone(g.ways), w), true
}

// where reduces the buffers by a way that all members take.
func (b *bundle) where(c context.Context, g *Group, op Op) error {
	call := desk.Call{Kind: plan.AllReduce, Op: op.of, Dtype: b.d, Count: -1}
	return g.byWay(c, call, op, b.bufs, func(c context.Context) error { return b.reduce(c, g, op) })
}

// byWay replaces what is in buffers by a way that all members take; where there is none, host is
// called in its place. call describes the operation.
func (g *Group) byWay(c context.Context, call desk.Call, op Op, bufs []*device.Buffer, host func(c context.Context) error) error {
	call.Algorithm, call.Line = plan.Direct, g.known.line()
	placeIn(c).describe(&call)
	if call.Count >= 0 { // who was offered no way calls the same without
		call.For, call.Count = strings.TrimSpace(fmt.Sprintf("%s one buffer of %d", call.For, call.Count)), -1
	}
	scope, _ := c.Value(scopeKey{}).(string)
	in, err := g.compoundOf(c, scope, call)
	if err != nil {
		return err
	}
	for _, buf := range bufs {
		in.r.bytes += buf.Len()
	}
	w, err := g.choose(c, in, op, call.Dtype, bufs)
	switch {
	case err != nil:
	case w == nil:
		err = host(in.Part(c))
	default:
		err = w.Reduce(c, in, op, call.Dtype, bufs)
	}
	if end := in.End(err); err == nil {
		err = end
	}
	return err
}

// choose gives the way that all members take, nil for the host's.
func (g *Group) choose(c context.Context, in *Compound, op Op, d device.Dtype, bufs []*device.Buffer) (Way, error) {
	var ways []Way
	var names []string
	g.mu.Lock()
	offered := g.ways
	g.mu.Unlock()
	for _, w := range offered {
		if in.r.bytes > 0 && w.Takes(op, d, bufs) {
			ways, names = append(ways, w), append(names, w.Name())
		}
	}
	if len(ways) > 0 {
		if err := written(bufs); err != nil {
			return nil, err
		}
	}
	all, err := Agree(in.Part(c), g, names)
	if err != nil {
		return nil, err
	}
	var chosen Way
	name := hostWay
	for _, n := range slices.Backward(all[0]) {
		if !slices.ContainsFunc(all, func(of []string) bool { return !slices.Contains(of, n) }) {
			name, chosen = n, ways[slices.Index(names, n)]
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	in.r.way = name
	return chosen, nil
}

// written waits for what wrote buffers, and tells what went wrong with it.
func written(bufs []*device.Buffer) error {
	for _, buf := range bufs {
		if a, ok := buf.Device().(*device.Accelerator); ok {
			if err := a.Check(buf); err != nil {
				return err
			}
		}
	}
	return nil
}

// reducedThere is AllReduced in a group that was offered a way.
func (g *Group) reducedThere(c context.Context, call desk.Call, op Op, x *device.Buffer) (*device.Buffer, error) {
	var bufs []*device.Buffer
	if x.Device() != device.Host() {
		y, err := copyOf(x)
		if err != nil {
			return nil, g.refuse(c, plan.AllReduce, err)
		}
		bufs = append(bufs, y)
	}
	var all *device.Buffer
	err := g.byWay(c, call, op, bufs, func(c context.Context) (err error) {
		all, err = g.reducedOnHost(c, call, x)
		return err
	})
	if err == nil && all == nil {
		return bufs[0], nil
	}
	for _, b := range bufs {
		_ = b.Release() // ours
	}
	if err != nil && all != nil {
		_ = all.Release() // ours
		all = nil
	}
	return all, err
}

// copyOf is a copy of a buffer where that lies.
func copyOf(x *device.Buffer) (*device.Buffer, error) {
	y, err := x.Device().Alloc(x.Len())
	if err != nil {
		return nil, err
	}
	if err := x.Device().CopyWithin(y, x); err != nil {
		_ = y.Release() // ours
		return nil, err
	}
	return y, nil
}
