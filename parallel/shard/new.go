package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// New spreads the parameters of layers over a group, with the values that they have on rank 0. A
// layer is what is used together: it is gathered at once. Parameters must be leaves that require
// gradients, of nobody's and of no optimizer's. They have values only inside their layers from then
// on.
//
// All members call it, with parameters of the same names, shapes and dtypes in the same layers:
// else all get a parallel.DifferenceError. Where it fails no parameter has changed.
func New(c context.Context, g *collective.Group, layers [][]*autodiff.Tensor, config Config) (*Shards, error) {
	s := &Shards{g: g, across: config.Across, stage: config.Stage, check: config.Check, of: map[*autodiff.Tensor]int{}, total: 1}
	offer := s.inspect(layers, config)
	if err := s.agree(c, offer); err != nil {
		return nil, fmt.Errorf("shard: New: %w", err)
	}
	values, err := s.spread(c)
	defer func() { host.Release(values...) }()
	if err := s.outcome(c, err); err != nil { // on all ranks or on none
		return nil, fmt.Errorf("shard: New: %w", err)
	}
	for _, l := range s.layers {
		for _, f := range l.flats {
			for j, i := range f.params {
				t := s.whole[i].Type()
				lo, hi := f.mine(j)
				t.Shape = device.Shape{hi - lo}
				s.parts[i] = autodiff.Wrap(t, values[i], nil).RequireGrad()
				values[i] = nil
				err = errors.Join(err, s.parts[i].Err())
			}
		}
		visit := autodiff.Visit{
			Name: fmt.Sprintf("layer %d", l.number), Device: l.dev, Bring: s.bring,
			Take: func(grads []*autodiff.Tensor) error { return s.takeGradients(l, grads) },
		}
		err = errors.Join(err, autodiff.ComeAndGo(visit, s.whole[l.first:l.first+l.params()]...))
	}
	if err != nil {
		return nil, fmt.Errorf("shard: New: %w", err)
	}
	return s, nil
}

// inspect checks what this rank brings, and lays it out.
func (s *Shards) inspect(layers [][]*autodiff.Tensor, config Config) peers.Offer {
	named := map[*autodiff.Tensor]string{}
	for name, p := range config.Names {
		named[p] = name
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{parallel.ErrParameters}, args...)...))
	}
	if config.Stage != Zero3 && config.Stage != Zero1 {
		bad("Config.Stage is %d", config.Stage)
	}
	if len(layers) == 0 {
		bad("there are no layers")
	}
	for _, k := range config.Keep {
		if k < 0 || k >= len(layers) {
			bad("Config.Keep has layer %d of %d", k, len(layers))
		}
	}
	offer := peers.Offer{Config: []string{
		fmt.Sprintf("Config.Stage: %d", config.Stage), fmt.Sprintf("ranks of the group: %d", s.g.Size()), fmt.Sprintf("Config.Across is given: %t", config.Across != nil),
		fmt.Sprintf("Config.Keep: %v", config.Keep), fmt.Sprintf("Config.Check: %t", config.Check),
	}}
	for k, params := range layers {
		l := &layer{number: k, first: len(s.whole), dev: config.Device}
		l.keep = config.Stage == Zero1 || k == len(layers)-1 || slices.Contains(config.Keep, k) // the backward begins with the last one
		if len(params) == 0 {
			bad("layer %d has no parameters", k)
		}
		var sizes []param
		for _, p := range params {
			name := strconv.Itoa(len(s.whole))
			if len(config.Names) > 0 {
				name = named[p]
			}
			if name == "" {
				bad("Config.Names has no name of a parameter %v of layer %d", p, k)
			}
			if before, twice := s.of[p]; twice {
				bad("%s is in layers %d and %d", s.names[slices.Index(s.whole, p)], before, k)
			}
			s.of[p] = k
			if err := l.accept(p); err != nil {
				bad("%s of layer %d: %w", name, k, err)
			}
			s.whole, s.names = append(s.whole, p), append(s.names, name)
			sizes = append(sizes, param{p.Dtype(), p.Type().Shape.Elems()})
			offer.List = append(offer.List, fmt.Sprintf("%s of layer %d: %v", name, k, p.Type()))
		}
		l.flats = cut(l.first, sizes, s.g.Size(), s.g.Rank())
		s.layers = append(s.layers, l)
	}
	s.parts, s.used = make([]*autodiff.Tensor, len(s.whole)), len(s.layers)
	if n := len(config.Names); n > 0 && n != len(s.whole) {
		bad("%d names of %d parameters", n, len(s.whole))
	}
	offer.Err = errors.Join(errs...)
	return offer
}

// accept says why a tensor cannot be a parameter of the layer.
func (l *layer) accept(p *autodiff.Tensor) error {
	switch {
	case p.Err() != nil:
		return p.Err()
	case !p.RequiresGrad() || !p.IsLeaf() || p.Owner() != nil:
		return fmt.Errorf("%v must be a leaf of nobody's that requires a gradient", p)
	case p.IsStepped():
		return fmt.Errorf("%v has an optimizer already; give it Shards.Params", p)
	}
	value, err := p.Acquire()
	if err != nil {
		return err
	}
	defer value.Release() //nolint:errcheck // ours
	if l.dev == nil {
		l.dev = value.Device()
	}
	return nil
}

// agree sees to it that all ranks bring the same, and name their scopes alike.
func (s *Shards) agree(c context.Context, offer peers.Offer) error {
	err := peers.Compare(c, s.g, offer)
	if s.across != nil {
		offer.Err = err
		offer.Config = append(offer.Config, fmt.Sprintf("rank in its group: %d", s.g.Rank()))
		if e := peers.Compare(c, s.across, offer); err == nil {
			err = e
		}
		if e := peers.Outcome(c, s.g, err); e != nil { // of another rank's across
			err = e
		}
	}
	if err != nil {
		return err
	}
	for _, g := range []*collective.Group{s.g, s.across} {
		if g == nil {
			continue
		}
		if s.id == "" {
			s.id = rand.Text()
		}
		ids, err := collective.Agree(c, g, s.id)
		if err != nil {
			return err
		}
		s.id = ids[0]
	}
	return nil
}

// spread gives each rank its shards of the values of rank 0: one buffer for each parameter, where
// the layer is to be. All call all operations, whatever happens.
func (s *Shards) spread(c context.Context) (parts []*device.Buffer, err error) {
	parts = make([]*device.Buffer, len(s.whole))
	for _, l := range s.layers {
		for _, f := range l.flats {
			for j, i := range f.params {
				whole, e := s.fromFirst(c, s.whole[i])
				if e == nil {
					lo, hi := f.mine(j)
					parts[i], e = host.CopyTo(l.dev, whole, lo*f.dtype.Size(), (hi-lo)*f.dtype.Size())
				}
				host.Release(whole)
				err = errors.Join(err, e)
			}
		}
	}
	return parts, err
}

// fromFirst is the value of a parameter on rank 0 of the first group, on the host.
func (s *Shards) fromFirst(c context.Context, p *autodiff.Tensor) (*device.Buffer, error) {
	t := p.Type()
	value, err := onHost(p)
	for _, g := range []*collective.Group{s.across, s.g} {
		if g == nil || g.Size() == 1 {
			continue
		}
		var mine *device.Buffer
		if g.Rank() == 0 {
			mine = value
		}
		all, e := g.Broadcasted(c, t.Dtype, t.Shape.Elems(), mine, 0)
		host.Release(value)
		value, err = all, errors.Join(err, e)
	}
	return value, err
}

// onHost is a tensor's value on the host.
func onHost(p *autodiff.Tensor) (*device.Buffer, error) {
	value, err := p.Acquire()
	if err != nil || value.Device() == device.Host() {
		return value, err
	}
	defer host.Release(value)
	return host.Copy(value)
}
