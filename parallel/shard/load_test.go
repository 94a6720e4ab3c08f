package shard_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/nn"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/shard"
	"github.com/weft-project/weft/store"
)

// pieces are what a rank has, by name.
func (k *saver) pieces() (map[string][]byte, error) {
	list, _, err := k.s.Pieces(k.opt)
	all := map[string][]byte{}
	for _, p := range list {
		all[p.Name] = p.Data
	}
	return all, err
}

// nudge has the optimizer step by the same gradients everywhere.
func (k *saver) nudge(dev device.Device) error {
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for _, p := range k.s.Params() {
		grads[p] = autodiff.To(nn.Ones(p.Dtype(), p.Shape()...), dev)
	}
	return k.opt.Step(grads)
}

func TestALoadThatFailsOnOneRankChangesNoShardAndNoOptimizerOnAny(t *testing.T) {
	const size, bytes, bad = 2, 1 << 20, 1
	for name, full := range map[string]bool{"its device is full": true, "its optimizer has another rule": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, size)
			meet, dir := store.NewMemory(), openDir(t)
			defer meet.Close()
			far := device.NewSim(device.SimConfig{Bytes: bytes})
			savers, saved, before := make([]*saver, size), make([]map[string][]byte, size), make([]map[string][]byte, size)
			w.Each(func(r int) (err error) {
				k := &saver{c: t.Context(), r: r, n: size, m: newModel(uint64(7+r), 12, 8)}
				savers[r] = k
				dev := device.Device(device.Host())
				if r == bad && full {
					dev = far
				}
				if k.s, err = shard.New(k.c, w.Gs[r], k.m.layers(), shard.Config{Names: k.m.names(), Device: dev}); err != nil {
					return err
				}
				if k.opt, err = optim.NewGroups(k.s.Named(optim.Adam{LR: 0.01})); err != nil {
					return err
				}
				err = k.nudge(dev)
				if err == nil {
					saved[r], err = k.pieces()
				}
				if err == nil {
					err = k.save(dir, meet, 1)
				}
				if err == nil && r == bad && !full {
					k.opt, err = optim.NewGroups(k.s.Named(optim.Adam{LR: 0.01, Beta1: 0.5}))
				}
				if err == nil {
					err = k.nudge(dev)
				}
				if err == nil {
					before[r], err = k.pieces()
				}
				return err
			})
			hog, err := far.Alloc(bytes - int(far.Stats().LiveBytes))
			require.NoError(t, err)
			for r, err := range w.Attempt(func(r int) error { return savers[r].load(dir) }) {
				var failure *parallel.FailureError
				require.ErrorAs(t, err, &failure, "rank %d", r)
				require.Equal(t, bad, failure.Rank)
				require.Equal(t, r == bad, errors.Is(err, optim.ErrState) || errors.Is(err, device.ErrMemory), "rank %d: %v", r, err)
				now, err := savers[r].pieces()
				require.NoError(t, err)
				require.Equal(t, before[r], now, "rank %d", r)
			}
			require.NoError(t, hog.Release())
			if !full {
				return
			}
			for r, err := range w.Attempt(func(r int) error { return savers[r].load(dir) }) {
				require.NoError(t, err, "rank %d", r)
				now, err := savers[r].pieces()
				require.NoError(t, err)
				require.Equal(t, saved[r], now, "rank %d", r)
			}
		})
	}
}
