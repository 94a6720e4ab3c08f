package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
)

// Stage is what the ranks keep shards of, in the words of ZeRO.
type Stage int

const (
	// Zero3 spreads parameters, gradients and optimizer state.
	Zero3 Stage = iota
	// Zero1 spreads optimizer state, and gradients once they are summed. A layer stays whole from
	// the forward that gathers it until the end of the next backward, or the next forward: it is
	// gathered once a step.
	Zero1
)

// Config is how shards are kept. The zero value works. But for Device it is the same on all ranks.
type Config struct {
	Stage Stage
	// Across, if not nil, has the ranks of other groups that have the same shards as this one, for
	// hybrid sharding: gradients are summed within each group, and then across. Each rank has the
	// same place in its group. See package mesh.
	Across *collective.Group
	// Device is where shards lie, and layers while they are whole; nil: where parameters lie when
	// they are given.
	Device device.Device
	// Keep lists layers that stay whole from their use in a forward until their backward, as the last
	// one does: for weights that are used at both ends of a model. All that lies between runs
	// inside their With.
	Keep []int
	// Check has Backward fail with a parallel.NotFiniteError where a rank's gradient is NaN or
	// infinite.
	Check bool
	// Names are of the parameters, for errors, optimizers and checkpoints: all of
	// nn.Parameters(model). Without them parameters are told apart by number.
	Names map[string]*autodiff.Tensor
}

// Shards are a model's parameters, spread over a group.
type Shards struct {
	g, across *collective.Group // across may be nil
	stage     Stage
	check     bool
	id        string // in the names of scopes
	names     []string
	whole     []*autodiff.Tensor // as the model has them; their values come and go
	parts     []*autodiff.Tensor // this rank's shards: what it keeps of each
	layers    []*layer
	of        map[*autodiff.Tensor]int // the layer of a parameter

	mu       sync.Mutex // also while somebody waits for a layer
	walk     walk
	latest   *fetch    // that was begun; nil: none
	used     int       // the last layer that was used in this forward
	forwards int       // that were begun
	backs    int       // backwards that were begun
	back     *backward // nil: none is under way
	total    float64   // rows that weights are for: those of the step before, on all ranks
}

// layer is parameters that are gathered together.
type layer struct {
	number int
	first  int // of its parameters
	flats  []*flat
	dev    device.Device // where it is whole
	fetch  *fetch        // under way, or there; nil: neither
	inUse  int           // calls of With that it is in
	keep   bool          // it stays there after its use in a forward
}

// params is how many there are.
func (l *layer) params() (n int) {
	for _, f := range l.flats {
		n += len(f.params)
	}
	return n
}

// Params are this rank's shards of the parameters, in the order in which these were given: vectors,
// which may be empty. They are what an optimizer steps, between a backward and the next forward.
func (s *Shards) Params() []*autodiff.Tensor { return append([]*autodiff.Tensor(nil), s.parts...) }

// Named are the shards with the names of their parameters, for optim.NewGroups.
func (s *Shards) Named(rule optim.Rule) optim.Group[*autodiff.Tensor] {
	return optim.Group[*autodiff.Tensor]{Rule: rule, Params: s.Params(), Names: append([]string(nil), s.names...)}
}

// Layer runs fn, which may read the parameters of layer k, and gives its result. c bounds the
// gathering of that layer, and of the next one. Where it fails the result carries the error. All
// ranks call it; see the package.
func (s *Shards) Layer(c context.Context, k int, fn func() *autodiff.Tensor) (y *autodiff.Tensor) {
	var use func() error
	if fn != nil {
		use = func() error { y = fn(); return nil }
	}
	if err := s.With(c, k, use); err != nil {
		return autodiff.Failed(err)
	}
	return y
}

// With is Layer for any function, also one that copies values. Its error is what fn returns, or why
// the layer could not be had; then fn does not run.
func (s *Shards) With(c context.Context, k int, fn func() error) error {
	if k < 0 || k >= len(s.layers) {
		return fmt.Errorf("shard: %w: %d of %d", ErrLayer, k, len(s.layers))
	}
	if fn == nil {
		return fmt.Errorf("shard: layer %d: %w: it is nil", k, autodiff.ErrFunction)
	}
	err := s.startUse(c, k)
	defer s.endUse(k)
	if err != nil {
		return fmt.Errorf("shard: layer %d: %w", k, err)
	}
	return fn()
}

// Skip takes part in a forward of the others, and computes nothing. A rank that has no rows calls
// it where they run their layers.
func (s *Shards) Skip(c context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.finishWalk(c)
	s.newForward()
	if e := s.finishWalk(c); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("shard: Skip: %w", err)
	}
	return nil
}

// Finish ends a forward that no backward follows, as an evaluation: it takes part in what this rank
// has left out, and lets go of what is whole. Where no rank leaves out layers the next forward, or
// a backward, does that without it. All ranks call it.
func (s *Shards) Finish(c context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.finishWalk(c)
	for _, l := range s.layers {
		s.dropLayer(l)
	}
	if err != nil {
		return fmt.Errorf("shard: Finish: %w", err)
	}
	return nil
}

// Layers is how many there are.
func (s *Shards) Layers() int { return len(s.layers) }
