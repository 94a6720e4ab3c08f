package kernels

import "github.com/weft-project/weft/device"

// chunk is how much of a repeated element is laid out at once, so that one loop serves tensors and scalars.
const chunk = 512

func binaryBody[T device.Float](i Binary, in []Type, out Type) body {
	loop := binaryLoop[T](i.Fn)
	s := out.Shape
	w := newWalk(s, rowMajor(s), broadcastStrides(in[0].Shape, s), broadcastStrides(in[1].Shape, s))
	if len(w.dims) == 0 && w.inner[1] == 1 && w.inner[2] == 1 {
		return func(outs, ins [][]byte) error {
			loop(device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1]))
			return nil
		}
	}
	repeats := min(w.inner[1], w.inner[2]) == 0
	return func(outs, ins [][]byte) error {
		o, a, b := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		if !repeats {
			w.runs(func(off []int) {
				loop(o[off[0]:off[0]+w.n], a[off[1]:off[1]+w.n], b[off[2]:off[2]+w.n])
			})
			return nil
		}
		scratch := make([]T, min(w.n, chunk))
		w.runs(func(off []int) {
			repeatedRun(loop, scratch, o[off[0]:off[0]+w.n], a[off[1]:], b[off[2]:], w.inner[1] == 0)
		})
		return nil
	}
}

// repeatedRun is a run in which the first element of a (where aRepeats) or of b stands for all.
func repeatedRun[T device.Float](loop func(o, a, b []T), scratch, o, a, b []T, aRepeats bool) {
	one := b[0]
	if aRepeats {
		one = a[0]
	}
	for k := range scratch {
		scratch[k] = one
	}
	for at := 0; at < len(o); at += len(scratch) {
		end := min(at+len(scratch), len(o))
		if aRepeats {
			loop(o[at:end], scratch[:end-at], b[at:end])
		} else {
			loop(o[at:end], a[at:end], scratch[:end-at])
		}
	}
}
