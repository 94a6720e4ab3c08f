package kernels

import (
	"math"

	"github.com/weft-project/weft/device"
)

// lines splits a shape along an axis: outer blocks of n elements that lie inner apart.
func lines(s device.Shape, axis int) (outer, n, inner int) {
	return s[:axis].Elems(), s[axis], s[axis+1:].Elems()
}

// eachLine calls fn with the first offset of every line along an axis.
func eachLine(outer, n, inner int, fn func(at int)) {
	if n == 0 {
		return
	}
	for o := range outer {
		for i := range inner {
			fn(o*n*inner + i)
		}
	}
}

func softmaxBody[T device.Float](i Softmax, t Type) body {
	outer, n, inner := lines(t.Shape, i.Axis)
	line := softmaxLine[T]
	if i.Log {
		line = logSoftmaxLine[T]
	}
	return func(outs, ins [][]byte) error {
		y, x := device.As[T](outs[0]), device.As[T](ins[0])
		eachLine(outer, n, inner, func(at int) { line(y[at:], x[at:], n, inner) })
		return nil
	}
}

// logSumExp gives the maximum m of a line and log Σexp(x-m).
func logSumExp[T device.Float](x []T, n, step int) (m, l float64) {
	m = lineMax(x, n, step)
	s := 0.0
	for k := range n {
		s += math.Exp(float64(x[k*step]) - m)
	}
	return m, math.Log(s)
}

func lineMax[T device.Float](x []T, n, step int) float64 {
	m := x[0]
	for k := range n {
		m = max(m, x[k*step])
	}
	return float64(m)
}

func softmaxLine[T device.Float](y, x []T, n, step int) {
	m, s := lineMax(x, n, step), 0.0
	for k := 0; k < n*step; k += step {
		e := math.Exp(float64(x[k]) - m)
		s += e
		y[k] = T(e)
	}
	for k := 0; k < n*step; k += step {
		y[k] = T(float64(y[k]) / s)
	}
}

func logSoftmaxLine[T device.Float](y, x []T, n, step int) {
	m, l := logSumExp(x, n, step)
	for k := 0; k < n*step; k += step {
		y[k] = T(float64(x[k]) - m - l)
	}
}

func softmaxGradBody[T device.Float](i SoftmaxGrad, t Type) body {
	outer, n, inner := lines(t.Shape, i.Axis)
	return func(outs, ins [][]byte) error {
		gx, y, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
		eachLine(outer, n, inner, func(at int) {
			s, end := 0.0, at+n*inner
			for k := at; k < end; k += inner {
				if i.Log {
					s += float64(gy[k])
				} else {
					s += float64(gy[k]) * float64(y[k])
				}
			}
			for k := at; k < end; k += inner {
				if i.Log {
					gx[k] = T(float64(gy[k]) - math.Exp(float64(y[k]))*s)
				} else {
					gx[k] = T(float64(y[k]) * (float64(gy[k]) - s))
				}
			}
		})
		return nil
	}
}

func crossEntropyBody[T device.Float](i CrossEntropy, in []Type) body {
	c := in[0].Shape[1]
	index := indexReader(in[1].Dtype)
	return func(outs, ins [][]byte) error {
		logits := device.As[T](ins[0])
		labels, err := index(i, ins[1], c)
		if err != nil {
			return err
		}
		loss := 0.0
		for r, label := range labels {
			row := logits[r*c : (r+1)*c]
			m, l := logSumExp(row, c, 1)
			loss += l + m - float64(row[label])
		}
		device.As[T](outs[0])[0] = T(loss / float64(len(labels)))
		return nil
	}
}

func crossEntropyGradBody[T device.Float](i CrossEntropyGrad, in []Type) body {
	c := in[0].Shape[1]
	index := indexReader(in[1].Dtype)
	return func(outs, ins [][]byte) error {
		gx, logits := device.As[T](outs[0]), device.As[T](ins[0])
		labels, err := index(i, ins[1], c)
		if err != nil {
			return err
		}
		scale := float64(device.As[T](ins[2])[0]) / float64(len(labels))
		for r, label := range labels {
			row, g := logits[r*c:(r+1)*c], gx[r*c:(r+1)*c]
			m, l := logSumExp(row, c, 1)
			for k, v := range row {
				p := math.Exp(float64(v) - m - l)
				if k == label {
					p--
				}
				g[k] = T(p * scale)
			}
		}
		return nil
	}
}
