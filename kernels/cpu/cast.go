package cpu

import (
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
)

func castBody(from, to device.Dtype) parallel.Body {
	switch from {
	case device.Float32:
		return castFrom[float32](to)
	case device.Float64:
		return castFrom[float64](to)
	case device.Int32:
		return castFrom[int32](to)
	}
	return castFrom[int64](to)
}

func castFrom[F device.Number](to device.Dtype) parallel.Body {
	switch to {
	case device.Float32:
		return convertBody[F, float32]()
	case device.Float64:
		return convertBody[F, float64]()
	case device.Int32:
		return convertBody[F, int32]()
	}
	return convertBody[F, int64]()
}

func convertBody[F, T device.Number]() parallel.Body {
	convert := func(v F) T { return T(v) }
	if to := device.DtypeOf[T](); device.DtypeOf[F]().IsFloat() && !to.IsFloat() {
		convert = func(v F) T { return T(saturate(float64(v), to)) }
	}
	return func(outs, ins [][]byte) error {
		o := device.As[T](outs[0])
		for k, v := range device.As[F](ins[0]) {
			o[k] = convert(v)
		}
		return nil
	}
}

// saturate drops the fraction and stays within the integers of a dtype; NaN is 0. Go leaves both to
// the processor.
func saturate(v float64, d device.Dtype) int64 {
	lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
	if d == device.Int32 {
		lo, hi = math.MinInt32, math.MaxInt32
	}
	switch {
	case v != v:
		return 0
	case v >= float64(hi): // for int64 the bound rounds up to 2⁶³, which is just out of range
		return hi
	case v <= float64(lo):
		return lo
	}
	return int64(v)
}

func fillBody(i kernels.Fill) parallel.Body {
	switch d := i.Type.Dtype; d {
	case device.Float32:
		return fillWith(float32(i.C))
	case device.Float64:
		return fillWith(i.C)
	case device.Int32:
		return fillWith(int32(saturate(i.C, d)))
	}
	return fillWith(saturate(i.C, device.Int64))
}

func fillWith[T device.Number](v T) parallel.Body {
	return func(outs, _ [][]byte) error {
		o := device.As[T](outs[0])
		for k := range o {
			o[k] = v
		}
		return nil
	}
}
