package gpus

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/collective"
)

// Attached is what a group reduces buffers by on its members' GPUs.
type Attached struct {
	g      *collective.Group
	nccl   *byNCCL // nil: without
	window *window // likewise
	ways   []string
	lacks  error
}

// Attach has AllReduceBuffers of a group reduce buffers where they lie, when those of each member
// lie on its GPU: by NCCL where all members have it; else, on one host, by kernels that read the
// other members' memory; else by way of the host, as without. All members call it, between the same
// operations, each with a device of On. It fails on all or on none: with Must where a member has no
// NCCL. What a group lacks, Without says. The next generation of a group attaches anew.
//
// NCCL adds up in an order of its own, the same on all members: only sums by kernels and by the
// host have the bits of one another. It is not used for bfloat16, nor for Min and Max of floats.
//
// An operation that fails while GPUs are at it ends its way in the group: those that come go
// another. Buffers stay as they were.
func Attach(c context.Context, g *collective.Group, d *Device, cfg Config) (*Attached, error) {
	if err := given(c, g, d); err != nil {
		return nil, fmt.Errorf("gpus: attach: %w", err)
	}
	a, err := attach(c, g, d, cfg)
	if err != nil {
		return nil, fmt.Errorf("gpus: attach to group %q: %w", g.Name(), err)
	}
	return a, nil
}

func attach(c context.Context, g *collective.Group, d *Device, cfg Config) (*Attached, error) {
	a := &Attached{g: g}
	failed := a.openNCCL(c, d, cfg)
	var err error
	if a.window, err = openWindow(c, g, d, cfg, failed); err != nil {
		return nil, errors.Join(err, a.Close(c))
	}
	a.lacks = errors.Join(a.lacks, a.window.lacks)
	if a.nccl != nil {
		a.offer(a.nccl, a.nccl.Err())
	}
	a.offer(a.window, a.window.lacks)
	return a, nil
}

// openNCCL opens a communicator where the group goes with NCCL. A failure is yet to be told to the
// other members: it may be this one's alone.
func (a *Attached) openNCCL(c context.Context, d *Device, cfg Config) (failed error) {
	n := &byNCCL{}
	if cfg.NCCL != Off {
		cfg.lacks = n.openStream(d)
	}
	var err error
	if n.Comm, err = Open(c, a.g, d, cfg); err == nil {
		a.nccl = n
		return nil
	}
	if n.handle != 0 {
		err = errors.Join(err, n.stream.Close())
	}
	if errors.Is(err, ErrWithout) {
		a.lacks = err
		return nil
	}
	return err
}

// offer offers also what takes nothing: so it is known of all operations by what way they go.
func (a *Attached) offer(w collective.Way, lacks error) {
	a.g.Offer(w)
	if lacks == nil {
		a.ways = append(a.ways, w.Name())
	}
}

// Ways are by what the group can reduce buffers on GPUs, the best first.
func (a *Attached) Ways() []string { return a.ways }

// Without is why it goes without NCCL, or without kernels, or both; nil where it has them.
func (a *Attached) Without() error { return a.lacks }

// Close ends it: operations go by way of the host from then on. All members call it, when none is
// under way. It waits for the others until c ends. Where the group has ended before it gives back
// what is left.
func (a *Attached) Close(c context.Context) error {
	var errs []error
	if a.nccl != nil {
		errs = append(errs, a.nccl.Close(c))
	}
	if a.window != nil {
		errs = append(errs, a.window.Close(c))
	}
	return errors.Join(errs...)
}
