package measure

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/bench/gpu/internal/median"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// measured is what a GPU has for who measures.
type measured interface {
	Driver() cuda.Driver
	Fence(cuda.Event) error
	Sync() error
}

// clock measures by events between all that was asked of a GPU before, and all that is asked later.
type clock struct {
	gpu        measured
	begin, end cuda.Timer
	rounds     int
}

func newClock(dev *device.Accelerator, rounds int) (*clock, error) {
	g, ok := dev.Memory().(measured)
	if !ok {
		return nil, fmt.Errorf("%v is no GPU", dev.ID())
	}
	c := &clock{gpu: g, rounds: rounds}
	var errs [2]error
	c.begin, errs[0] = g.Driver().Timer()
	c.end, errs[1] = g.Driver().Timer()
	return c, errors.Join(errs[:]...)
}

func (c *clock) Close() error { return errors.Join(c.begin.Close(), c.end.Close()) }

// warmUp is how many rounds are not measured.
const warmUp = 5

// median is how many milliseconds a run takes on the GPU; inner runs are timed together.
func (c *clock) median(inner int, run func() error) (float64, error) {
	for range min(warmUp, c.rounds) {
		if err := run(); err != nil {
			return 0, err
		}
	}
	if err := c.gpu.Sync(); err != nil {
		return 0, err
	}
	var times []float64
	for range c.rounds {
		if err := c.gpu.Fence(c.begin); err != nil {
			return 0, err
		}
		for range inner {
			if err := run(); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(c.gpu.Fence(c.end), c.end.Sync()); err != nil {
			return 0, err
		}
		ms, err := c.end.Since(c.begin)
		if err != nil {
			return 0, err
		}
		times = append(times, ms/float64(inner))
	}
	return median.Of(times), nil
}
