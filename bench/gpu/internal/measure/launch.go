package measure

import (
	"context"
	"errors"
	"time"

	"github.com/weft-project/weft/bench/gpu/internal/median"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
)

// chain is how many instructions the routine of launch has.
const chain = 64

// launch measures what an instruction costs beside its work: a routine of small additions, on the
// same memory each time (which becomes a graph) and on memory that changes.
func (b *bench) launch(context.Context) (err error) {
	for _, k := range []struct {
		mode string
		sets int // of memory, which take turns; of 64 there are graphs
	}{{"graph", 1}, {"list", 100}} {
		err = errors.Join(err, b.report(line{Case: "launch", Op: "instruction", Mode: k.mode}, func(l *line) error {
			return b.counted("launch", gpu.Float32, func(dev *device.Accelerator, t *clock) (err error) {
				run, err := chained(dev, k.sets)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, run.memory.release()) }()
				if l.MS, err = t.median(1, run.next); err != nil {
					return err
				}
				l.MS /= chain
				l.HostUS, err = hostTime(t, run.next)
				l.HostUS /= chain
				return err
			})
		}))
	}
	return err
}

// hostTime is the median of the microseconds after which run returns, with the GPU idle before.
func hostTime(t *clock, run func() error) (float64, error) {
	var times []float64
	for range 10 * t.rounds {
		if err := t.gpu.Sync(); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		times = append(times, float64(time.Since(began).Nanoseconds())/1e3)
	}
	return median.Of(times), nil
}

// turns is a routine and sets of memory that it runs on in turn.
type turns struct {
	routine kernels.Routine
	memory  buffers
	at      int
}

func (r *turns) next() error {
	r.at = (r.at + 1) % len(r.memory)
	return r.routine.Run(r.memory[r.at : r.at+1])
}

// chained makes a routine in which each instruction reads what the one before wrote.
func chained(dev device.Device, sets int) (*turns, error) {
	be, err := backend.For(dev)
	if err != nil {
		return nil, err
	}
	t := floats(256)
	places := []kernels.Place{{Off: 0, Len: t.Bytes()}, {Off: t.Bytes(), Len: t.Bytes()}}
	var calls []kernels.Call
	for k := range chain {
		from, to := places[k%2], places[1-k%2]
		calls = append(calls, kernels.Call{
			Instr: kernels.Binary{Fn: kernels.Mul}, In: []kernels.Type{t, t}, Outs: []kernels.Place{to}, Ins: []kernels.Place{from, from},
		})
	}
	r := new(turns)
	if r.routine, err = be.Assemble(calls, []int{2 * t.Bytes()}, []bool{true}); err != nil {
		return nil, err
	}
	of := make([]kernels.Type, sets)
	for k := range of {
		of[k] = floats(512)
	}
	r.memory, err = filled(dev, of...)
	return r, err
}
