package kernels

import "github.com/weft-project/weft/device"

func nonFiniteBody(d device.Dtype) body {
	if d == device.Float32 {
		return finiteness[float32]
	}
	return finiteness[float64]
}

func finiteness[T device.Float](outs, ins [][]byte) error {
	o, x, found := device.As[int32](outs[0]), device.As[T](ins[0]), AllFinite
	if !allFinite(x) {
		found = HasInfinity
		for _, v := range x {
			if v != v {
				found = HasNaN
				break
			}
		}
	}
	o[0] = int32(found)
	return nil
}
