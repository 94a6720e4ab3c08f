package gpus

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/collective/internal/turns"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/nccl"
)

// byNCCL reduces buffers by a communicator, on a stream of its own. Results come to memory beside
// the buffers first: what NCCL leaves undone harms none.
type byNCCL struct {
	*Comm
	stream cuda.Stream
	handle uintptr
	later  sync.WaitGroup // what is to be given back
}

// openStream opens the stream of a communicator to be.
func (n *byNCCL) openStream(d *Device) (err error) {
	if d.mem == nil {
		return errors.New("the device is one of Use, and not of On")
	}
	if n.stream, err = d.mem.Driver().Stream(); err != nil {
		return err
	}
	h, ok := n.stream.(cuda.Handled)
	if !ok {
		return errors.Join(errUnlent, n.stream.Close())
	}
	n.handle = h.Handle()
	return nil
}

// Name is [collective.Way]'s.
func (n *byNCCL) Name() string { return "NCCL" }

// ops are NCCL's operations that give what a group's do, but for the order of sums.
var ops = [...]struct {
	op collective.Op
	by nccl.RedOp
}{{collective.Sum, nccl.Sum}, {collective.Mean, nccl.Avg}, {collective.Prod, nccl.Prod}, {collective.Max, nccl.Max}, {collective.Min, nccl.Min}}

func redOp(op collective.Op, d device.Dtype) (by nccl.RedOp, ok bool) {
	for _, o := range ops {
		if o.op == op {
			return o.by, !d.IsFloat() || op != collective.Max && op != collective.Min // it may lose a NaN
		}
	}
	return 0, false
}

// Takes is [collective.Way]'s. Elements of bfloat16 NCCL would round at each step.
func (n *byNCCL) Takes(op collective.Op, d device.Dtype, bufs []*device.Buffer) bool {
	_, known := nccl.TypeOf(d)
	_, can := redOp(op, d)
	return known && can && n.Err() == nil && n.d.has(bufs)
}

// Reduce is [collective.Way]'s. Once NCCL may have begun, a failure ends the communicator: the
// other members wait in it, on their GPUs.
func (n *byNCCL) Reduce(c context.Context, in *collective.Compound, op collective.Op, d device.Dtype, bufs []*device.Buffer) error {
	t, _ := nccl.TypeOf(d)
	by, _ := redOp(op, d)
	bytes := 0
	for _, b := range bufs {
		bytes += b.Len()
	}
	to, err := n.d.acc.Borrow(bytes)
	if err != nil {
		return err
	}
	wait, err := n.d.mem.Mark(to.Addr()) // those who had it before may be at it
	if err == nil {
		err = wait()
	}
	if err != nil {
		to.Return()
		return err
	}
	var calls []nccl.Call
	at := to.Addr()
	for _, b := range bufs {
		if b.Len() > 0 {
			calls = append(calls, nccl.Call{Kind: nccl.AllReduce, Send: b.Addr(), Recv: at, Count: b.Len() / d.Size(), Type: t, Op: by})
			at += uintptr(b.Len())
		}
	}
	if err = n.submit(c, in.Part(n.life), turns.Key{Group: n.name + " " + in.Key()}, n.handle, calls); err == nil {
		err = n.finished(c)
	}
	if err != nil {
		n.returnLater(to, bufs)
		return err
	}
	return n.copyOut(bufs, to)
}

// finished waits for the GPU.
func (n *byNCCL) finished(c context.Context) error {
	err := n.Await(c, n.stream.Sync)
	if err != nil {
		err = n.broken(err)
	}
	return err
}

// copyOut puts results into the buffers.
func (n *byNCCL) copyOut(bufs []*device.Buffer, from device.Scratch) error {
	defer from.Return()
	return spread(n.d.mem, bufs, from.Addr())
}

// spread copies what lies at an address into buffers, one behind the other.
func spread(mem device.Memory, bufs []*device.Buffer, from uintptr) error {
	for _, b := range bufs {
		if b.Len() == 0 {
			continue
		}
		if err := mem.Move(b.Addr(), from, b.Len()); err != nil {
			return err
		}
		from += uintptr(b.Len())
	}
	return nil
}

// returnLater gives memory back when NCCL has let go of it and of the buffers.
func (n *byNCCL) returnLater(to device.Scratch, bufs []*device.Buffer) {
	held := slices.Clone(bufs)
	for _, b := range held {
		b.Retain()
	}
	n.later.Go(func() {
		n.idle()
		to.Return()
		for _, b := range held {
			_ = b.Release() // ours
		}
	})
}

// idle waits until nothing is under way in a communicator that has ended.
func (n *byNCCL) idle() {
	_ = n.letGo(context.Background()) // it ends when NCCL lets go
	_ = n.stream.Sync()
}

// Close is Comm's. The stream is closed when nothing is under way, for which it waits until c ends.
func (n *byNCCL) Close(c context.Context) error {
	err := n.Comm.Close(c)
	closed := make(chan error, 1)
	go func() {
		n.idle()
		n.later.Wait()
		closed <- n.stream.Close()
	}()
	select {
	case end := <-closed:
		return errors.Join(err, end)
	case <-c.Done():
		return errors.Join(err, ended(c))
	}
}
