package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
)

// fetch is a layer that is gathered. What it has is there when it is done.
type fetch struct {
	done   chan struct{}
	values []*device.Buffer // of its parameters; a reference each
	err    error
	void   bool // it failed on all ranks
	broken bool // ranks do different things: nothing goes well from here on
	shown  bool // the parameters have their values; guarded by the lock of the shards
}

func (f *fetch) wait() error {
	<-f.done
	return f.err
}

// isVoid says whether it has failed on all ranks, as far as is known.
func (f *fetch) isVoid() bool {
	select {
	case <-f.done:
		return f.void
	default:
		return false
	}
}

// launch begins to gather a layer, when the one before is done. Who does not use it takes part, and
// keeps nothing.
func (s *Shards) launch(c context.Context, l *layer, use bool) {
	before, f := s.latest, &fetch{done: make(chan struct{})}
	l.fetch, s.latest = f, f
	c = s.scoped(c, "gather", fmt.Sprintf("layer %d in %s", l.number, s.walk.what))
	go func() {
		defer close(f.done)
		if before != nil {
			if err := before.wait(); before.broken {
				f.err, f.void, f.broken = err, true, true
				return
			}
		}
		s.gather(c, l, f, use)
	}()
}

func (s *Shards) gather(c context.Context, l *layer, f *fetch, use bool) {
	if use {
		f.values = make([]*device.Buffer, l.params())
	}
	for _, flat := range l.flats {
		all, err := s.allOf(c, flat)
		f.void = f.void || err != nil
		f.broken = f.broken || errors.Is(err, collective.ErrMismatch)
		if err == nil && use {
			err = s.place(f.values, l, flat, all)
		}
		host.Release(all...)
		f.err = cmp.Or(f.err, err)
	}
	if f.err != nil {
		host.Release(f.values...)
		f.values = nil
	}
}

// broken is what all ranks have failed with, once they did different things; nil before.
func (s *Shards) broken() error {
	if f := s.latest; f != nil && f.wait() != nil && f.broken {
		return f.err
	}
	return nil
}

// scoped is the context of an operation on layers.
func (s *Shards) scoped(c context.Context, kind, what string) context.Context {
	return collective.Describe(collective.Scope(c, fmt.Sprintf("shards %s %s", s.id, kind)), what, func(string) {})
}

// allOf is the shares of all ranks. Where this rank cannot bring its own, it fails on all.
func (s *Shards) allOf(c context.Context, f *flat) ([]*device.Buffer, error) {
	mine, err := s.pack(f)
	defer host.Release(mine)
	if s.g.Size() == 1 && err == nil {
		return []*device.Buffer{mine.Retain()}, nil
	}
	all, failed := s.g.AllGathered(c, f.dtype, mine)
	return all, cmp.Or(err, failed)
}

// pack is this rank's share as it travels; nil where there is an error.
func (s *Shards) pack(f *flat) (*device.Buffer, error) {
	_, share := f.bytes()
	b, mem, err := host.Zeros(share)
	if err != nil {
		return nil, err
	}
	for j, i := range f.params {
		off, n := f.inShare(j)
		if n == 0 {
			continue
		}
		if _, err := host.Read(mem[off:], s.parts[i]); err != nil {
			host.Release(b)
			return nil, err
		}
	}
	return b, nil
}

// place makes values of a layer's parameters, where the layer is to be, of the shares of all ranks.
func (s *Shards) place(values []*device.Buffer, l *layer, f *flat, shares []*device.Buffer) error {
	pieces := make([]device.Piece, 0, len(shares))
	total := 0
	for _, b := range shares {
		pieces = append(pieces, device.Piece{Buf: b, Len: b.Len()})
		total += b.Len()
	}
	if all, _ := f.bytes(); total != all {
		return fmt.Errorf("%w: the shares of layer %d have %d bytes; expected %d", collective.ErrMismatch, l.number, total, all)
	}
	whole, err := device.Join(pieces...)
	if err != nil {
		return err
	}
	defer host.Release(whole)
	for j, i := range f.params {
		off, n := f.spot(j)
		if values[i-l.first], err = host.Part(l.dev, whole, off, n); err != nil {
			return err
		}
	}
	return nil
}
