package rpc

import (
	"bytes"
	"context"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/rpc/internal/codec"
)

// Option changes how a function is served.
type Option func(*options)

type options struct {
	checkpoint bool
}

// Checkpoint makes the serving worker keep only the arguments and the result of a recorded call:
// what the function computes on the way is freed when it returns, and the function is run again
// when gradients arrive. What [autodiff.Checkpoint] asks of a function holds: the second run must
// compute the same. It finds the same pass in its context, which then has no deadline.
//
// The function may hold plain values and tensors, no references, and must not call: its calls would
// be made again. They fail with [ErrCheckpoint]. Outside of a pass, and under ctx.NoGrad, the
// option changes nothing.
func Checkpoint() Option { return func(o *options) { o.checkpoint = true } }

type checkpointKey struct{}

// checkpointable says why a function cannot be run again.
func checkpointable(in, out *codec.Codec) error {
	if in.Refers() || out.Refers() || out.Travels() != nil {
		return misdeclared("a checkpointed function takes and gives plain values and tensors, without references")
	}
	return nil
}

// handleAgain is handle for a call that is recorded as a checkpoint.
func (f *Func[In, Out]) handleAgain(c context.Context, args *In) (any, pending, error) {
	in, tensors, err := takeApart(f.in, args)
	if err != nil {
		return nil, nil, err
	}
	c = context.WithValue(c, checkpointKey{}, f.name)
	var out []byte // the result of the first run, but for the tensors
	again := false // the first run is over before the node is known to anybody
	results, err := autodiff.CheckpointFunc(f.name, f.at, func(ts []*autodiff.Tensor) ([]*autodiff.Tensor, error) {
		if again {
			_, results, err := f.replay(context.WithoutCancel(c), in, ts)
			return results, err
		}
		var results []*autodiff.Tensor
		again = true
		out, results, err = f.replay(c, in, ts) // the caller may give this one up
		return results, err
	}, tensors...)
	if err != nil {
		return nil, nil, err
	}
	result := new(Out)
	if err := putTogether(f.out, out, results, result); err != nil {
		return nil, nil, err
	}
	return result, nil, nil
}

// replay runs the function on arguments that were taken apart, and takes its result apart.
func (f *Func[In, Out]) replay(c context.Context, in []byte, ts []*autodiff.Tensor) ([]byte, []*autodiff.Tensor, error) {
	args, out := new(In), new(Out)
	if err := putTogether(f.in, in, ts, args); err != nil {
		return nil, nil, err
	}
	if _, err := f.protect(c, *args, out); err != nil {
		return nil, nil, err
	}
	return takeApart(f.out, out)
}

// takeApart takes a value without references apart into its tensors and the rest.
func takeApart(cd *codec.Codec, ptr any) ([]byte, []*autodiff.Tensor, error) {
	var p codec.Packing
	var b bytes.Buffer
	err := cd.Encode(&p, ptr, &b)
	return b.Bytes(), p.Tensors, err
}

// putTogether is the inverse of takeApart, with other tensors.
func putTogether(cd *codec.Codec, raw []byte, tensors []*autodiff.Tensor, into any) error {
	return cd.Decode(&codec.Unpacking{Tensors: tensors}, raw, into)
}

// checkpoints says that a call under c is to be recorded as a checkpoint.
func (o *options) checkpoints(c context.Context) bool { return o.checkpoint && ctx.Recording(c) }
