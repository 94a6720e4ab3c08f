package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/bench/gpu/internal/median"
	"github.com/weft-project/weft/bench/gpu/internal/places"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
	"github.com/weft-project/weft/kernels/gpu"
	"github.com/weft-project/weft/optim"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// cut is a network in two parts. The first two layers are the first part's.
type cut struct {
	whole      model
	head, tail *autodiff.Func
	precision  gpu.Precision
}

const headParams = 4

func (b *bench) cuts() map[string]func() cut {
	return map[string]func() cut{
		"mlp-small": func() cut { return cut{newSmall(b.sizes.small), smallHead, smallTail, gpu.Float32} },
		"mlp-large": func() cut { return cut{newLarge(b.sizes.large), largeHead, largeTail, gpu.BF16} },
	}
}

// trained is what a worker says of its training.
type trained struct {
	MS     float64               // of a step, by the clock on the wall
	Losses []float64             // of its first steps
	Lanes  []transport.LaneState // to the other worker
	Ways   []kernels.Way         // of this worker's GPU
}

// apartLine is a line of split.
type apartLine struct {
	line
	Lanes  map[string]uint64 `json:"bytes_by_lane"`    // sent and received
	Around uint64            `json:"around_lane_cuda"` // messages that another lane carried, also until that one was up
}

// split trains a network in one process, then split between two on the same GPU, and compares times
// and losses. On a real GPU what goes between them must stay on it: on lane cuda.
func (b *bench) split(c context.Context) (err error) {
	for _, name := range []string{"mlp-small", "mlp-large"} {
		l := apartLine{line: line{Case: "split", Op: name, Mode: "two processes"}}
		err = errors.Join(err, b.tellMore(&l.line, &l, func() error {
			k := b.cuts()[name]()
			var one trained
			err := b.on(k.precision, func(dev *device.Accelerator, _ *clock) (err error) {
				step, err := k.whole.on(dev).stepper()
				if err == nil {
					one, err = b.steps(func() (float64, error) { return step(true) })
				}
				return err
			})
			if err != nil {
				return err
			}
			b.say(line{Case: "split", Op: name, Mode: "one process", MS: one.MS})
			two, err := b.twoProcesses(c, name)
			if err != nil {
				return err
			}
			b.sayWays("split "+name, two.Ways)
			by := off(two.Losses, one.Losses)
			l.MS, l.OfOne, l.Off, l.OffAllowed, l.Lanes = two.MS, one.MS/two.MS, &by, 1e-4, two.bytes()
			for _, s := range two.Lanes {
				l.Around += s.Passed
			}
			if by > l.OffAllowed {
				err = fmt.Errorf("losses %v, in one process %v", two.Losses, one.Losses)
			}
			if b.at != places.Interpreter { // which is another GPU in each process
				err = errors.Join(err, two.stayed())
			}
			return err
		}))
	}
	return err
}

// bytes are those that went either way, by lane.
func (t trained) bytes() map[string]uint64 {
	by := map[string]uint64{}
	for _, s := range t.Lanes {
		by[s.Name] = s.Sent + s.Received
	}
	return by
}

// stayed says why tensors did not go both ways by lane cuda; nil where they did.
func (t trained) stayed() error {
	why := "there is no such lane"
	for _, s := range t.Lanes {
		switch {
		case s.Name != transport.LaneCUDA:
			continue
		case s.Why != "":
			why = s.Why
		case s.Sent == 0 || s.Received == 0:
			why = fmt.Sprintf("it is up, and %d bytes were sent and %d received by it", s.Sent, s.Received)
		default:
			return nil
		}
	}
	return fmt.Errorf("both processes use this GPU, and what went between them did not go by lane %s: %s; bytes by lane: %v", transport.LaneCUDA, why, t.bytes())
}

// steps times steps, each with its loss, which waits for it.
func (b *bench) steps(step func() (float64, error)) (out trained, err error) {
	var times []float64
	for k := range warmUp + b.rounds {
		began := time.Now()
		loss, err := step()
		if err != nil {
			return out, err
		}
		if k < warmUp {
			out.Losses = append(out.Losses, loss)
			continue
		}
		times = append(times, float64(time.Since(began).Nanoseconds())/1e6)
	}
	out.MS = median.Of(times)
	return out, nil
}

// twoProcesses starts this program twice more.
func (b *bench) twoProcesses(c context.Context, name string) (out trained, err error) {
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	var said, errs bytes.Buffer
	_, err = agent.Run(c, agent.Spec{
		Program: self, Args: []string{"worker", "-device", b.at.String(), "-rounds", strconv.Itoa(b.rounds), "-only", name},
		NprocPerNode: 2, NoPrefix: true, Stdout: &said, Stderr: &errs,
	})
	if err != nil {
		return out, fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	return out, json.Unmarshal(said.Bytes(), &out)
}

// Worker is one of two processes, which agent.Run has started.
func Worker(c context.Context, args []string, stdout, stderr io.Writer) (err error) {
	f := flag.NewFlagSet("gpucheck worker", flag.ContinueOnError)
	b := newBench(f, stdout)
	name := f.String("only", "", "the network")
	rank := os.Getenv("RANK")
	if err := flags.Parse(f, args, stderr, b.wrong, func() error {
		if b.cuts()[*name] == nil || rank != "0" && rank != "1" {
			return fmt.Errorf("RANK=%s -only %s; this is for gpucheck to start", rank, *name)
		}
		return nil
	}); err != nil {
		return err
	}
	b.ready()
	k := b.cuts()[*name]()
	dev, err := b.device(k.precision)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	k.whole = k.whole.on(dev)
	w, parts, err := k.join(c, dev, rpc.Config{}, map[string]string{"0": "worker1", "1": "worker0"}[rank], dev.ID())
	if err != nil {
		return err
	}
	if rank == "0" {
		out, err := b.lead(c, w, k, parts)
		out.Ways = backend.Ways(dev)
		if err == nil {
			err = json.NewEncoder(stdout).Encode(out)
		}
		if err != nil {
			_ = w.Close() // the error says more
			return err
		}
	}
	return w.Leave(c)
}

// join joins the job as one of the two workers, with a configuration that says where that is, if
// the environment does not. The peer's device is theirs.
func (k cut) join(c context.Context, dev *device.Accelerator, cfg rpc.Config, peer string, theirs device.ID) (*rpc.Worker, remote, error) {
	parts := k.functions()
	cfg.Functions = append(optim.Functions(), parts.params, parts.forward)
	cfg.Devices, cfg.DeviceMaps = []device.Device{dev}, map[string]device.Map{peer: {dev.ID(): theirs}}
	w, err := rpc.Join(c, cfg)
	return w, parts, err
}

// remote is what the second worker serves.
type remote struct {
	params  *rpc.Func[struct{}, []optim.Param]
	forward *rpc.Func[*autodiff.Tensor, *autodiff.Tensor]
}

func (k cut) functions() remote {
	return remote{
		rpc.Define("split.params", func(c context.Context, _ struct{}) ([]optim.Param, error) {
			return shared(c, k.whole.params[headParams:])
		}),
		rpc.Define("split.forward", func(_ context.Context, h *autodiff.Tensor) (*autodiff.Tensor, error) {
			return k.tail.Call(slices.Concat(tensors{h}, k.whole.params[headParams:], k.whole.batch[1:])...), nil
		}),
	}
}

func shared(c context.Context, ts tensors) ([]optim.Param, error) {
	refs := make([]optim.Param, len(ts))
	for i, t := range ts {
		var err error
		if refs[i], err = rpc.NewRRef(c, t); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

// lead trains, with the second part on the other worker.
func (b *bench) lead(c context.Context, w *rpc.Worker, k cut, parts remote) (out trained, err error) {
	c = w.Context(c)
	const peer = "worker1"
	params, err := shared(c, k.whole.params[:headParams])
	if err != nil {
		return out, err
	}
	theirs, err := parts.params.Call(c, peer, struct{}{})
	if err != nil {
		return out, err
	}
	opt, err := optim.NewDistributed(c, k.whole.rule, append(params, theirs...)...)
	if err != nil {
		return out, err
	}
	out, err = b.steps(func() (value float64, err error) {
		err = w.Pass(c, func(c context.Context) error {
			x := ctx.Own(c, k.whole.batch[0].Detach())
			h := k.head.Call(append(tensors{x}, k.whole.params[:headParams]...)...)
			loss, err := parts.forward.Call(c, peer, h)
			if err != nil {
				return err
			}
			if err := ctx.Backward(c, loss); err != nil {
				return err
			}
			if err := opt.Step(c); err != nil {
				return err
			}
			value, err = loss.Item()
			return err
		})
		return value, err
	})
	for _, l := range w.Lanes() {
		if l.Peer == peer {
			out.Lanes = l.Lanes
		}
	}
	return out, err
}
