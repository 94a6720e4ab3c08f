package shard_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel/shard"
)

// deep are the widths of a model of 12 layers, all but the first and the last of one size.
var deep = []int{features, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, classes}

const rowsOfDeep, ranksOfDeep = 2, 4

// sizes are what the model and its largest layer have, in elements, and how many bytes activations
// need: what the forward keeps of each layer, and a few gradients.
func sizes(m model) (all, largest, activations int) {
	for _, params := range m.layers() {
		n := 0
		for _, p := range params {
			n += p.Type().Shape.Elems()
		}
		all, largest = all+n, max(largest, n)
	}
	return all, largest, (4*len(m.layers()) + 8) * rowsOfDeep * 64 * 4
}

// onDevice trains for some steps with all that lasts on a device.
func onDevice(c context.Context, g *collective.Group, dev device.Device, stage shard.Stage) error {
	c, cancel := context.WithTimeout(c, time.Minute) // where one fails alone the others do not wait for ever
	defer cancel()
	m := newModel(1, deep...)
	s, err := shard.New(c, g, m.layers(), shard.Config{Device: dev, Stage: stage})
	if err != nil {
		return err
	}
	opt, err := optim.NewGroups(s.Named(optim.Adam{LR: 0.01}))
	if err != nil {
		return err
	}
	for range 3 {
		owner := autodiff.NewArena("step")
		x, y, err := newTable().rows(owner, make([]int, rowsOfDeep))
		if err != nil {
			return err
		}
		loss := autodiff.CrossEntropy(m.sharded(c, s, autodiff.To(x, dev)), autodiff.To(y, dev))
		grads, err := s.Backward(c, loss, rowsOfDeep)
		if err == nil {
			err = opt.Step(grads)
		}
		owner.Free()
		if err != nil {
			return err
		}
	}
	if err := s.Finish(c); err != nil {
		return err
	}
	return lasting(s, opt, m)
}

// lasting fails where more lasts than 12 bytes for each element of a part, and what layers are
// padded with.
func lasting(s *shard.Shards, opt *optim.Local, m model) error {
	state, err := opt.State()
	if err != nil {
		return err
	}
	n := 0
	for _, p := range s.Params() {
		n += p.Bytes()
	}
	for _, x := range state.Tensors {
		n += x.Bytes()
	}
	if all, _, _ := sizes(m); n > 12*(all/ranksOfDeep+16*len(m.layers())) || n < 12*(all/ranksOfDeep-16*len(m.layers())) {
		return fmt.Errorf("%d bytes last, of a model of %d elements", n, all)
	}
	return nil
}

// A simulated device counts what somebody has to give back: whole layers, gradients, activations.
// What lasts is nobody's; onDevice counts it.
func TestARankNeedsItsPartTwoLayersAndActivations(t *testing.T) {
	all, largest, activations := sizes(newModel(1, deep...))
	limit := 4*all/ranksOfDeep + 2*4*largest + activations // with 12 for each element that lasts
	for name, k := range map[string]struct {
		limit int
		stage shard.Stage
		fits  bool
	}{
		"Zero3":                {limit, shard.Zero3, true},
		"Zero3, a layer less":  {limit - 4*largest, shard.Zero3, false},
		"Zero1, in no more":    {limit, shard.Zero1, false},
		"Zero1, in all layers": {limit + 4*all, shard.Zero1, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, ranksOfDeep)
			for r, err := range w.Attempt(func(r int) error {
				return onDevice(t.Context(), w.Gs[r], device.NewSim(device.SimConfig{Index: r, Bytes: int64(k.limit)}), k.stage)
			}) {
				if k.fits {
					require.NoError(t, err, "rank %d", r)
				} else {
					require.ErrorContains(t, err, device.ErrMemory.Error(), "rank %d", r)
				}
			}
		})
	}
}
