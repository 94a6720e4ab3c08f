package cpu

import (
	"errors"
	"math"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/cpu/internal/parallel"
	"github.com/weft-project/weft/kernels/cpu/internal/scratch"
)

// softmaxes are the bodies of softmax and of the loss by it.
func softmaxes[T vec.Float](i kernels.Instr, in, _ []kernels.Type) parallel.Body {
	switch i := i.(type) {
	case kernels.Softmax:
		return softmaxBody[T](i, in[0])
	case kernels.SoftmaxGrad:
		return softmaxGradBody[T](i, in[0])
	case kernels.CrossEntropy:
		return crossEntropyBody[T](i, in)
	case kernels.CrossEntropyGrad:
		return crossEntropyGradBody[T](i, in)
	}
	return nil
}

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

// rows calls fn with the first offset of each row of n elements, from a row on.
func rows[T vec.Float](x []T, n, from int, fn func(at int)) {
	for at := from * n; n > 0 && at < len(x); at += n {
		fn(at)
	}
}

func softmaxBody[T vec.Float](i kernels.Softmax, t kernels.Type) parallel.Body {
	outer, n, inner := lines(t.Shape, i.Axis)
	row, line := softmaxRow[T], softmaxLine[T]
	if i.Log {
		row, line = logSoftmaxRow[T], logSoftmaxLine[T]
	}
	v := vec.Best[T]()
	if inner == 1 {
		return parallel.Rows(outer, n, func(outs, ins [][]byte, from, to int) {
			y, x := device.As[T](outs[0])[:to*n], device.As[T](ins[0])
			rows(y, n, from, func(at int) { row(v, y[at:at+n], x[at:at+n]) })
		})
	}
	return func(outs, ins [][]byte) error {
		y, x := device.As[T](outs[0]), device.As[T](ins[0])
		eachLine(outer, n, inner, func(at int) { line(y[at:], x[at:], n, inner) })
		return nil
	}
}

// softmaxRow may write y over x.
func softmaxRow[T vec.Float](v *vec.Loops[T], y, x []T) {
	s := v.ExpSum(y, x, v.Max(x))
	v.Scale(y, y, T(1/s))
}

// logSoftmaxRow subtracts the maximum by itself, so that the differences keep their digits.
func logSoftmaxRow[T vec.Float](v *vec.Loops[T], y, x []T) {
	m, l := logSumExp(v, x)
	v.Shift(y, x, -m)
	v.Shift(y, y, T(-l))
}

// logSumExp gives the maximum m of a row and log Σexp(x−m).
func logSumExp[T vec.Float](v *vec.Loops[T], x []T) (m T, l float64) {
	s := scratch.Take(8 * len(x))
	defer s.Free()
	m = v.Max(x)
	return m, math.Log(v.ExpSum(scratch.Elems[T](s)[:len(x)], x, m))
}

// softmaxLine is softmaxRow for elements that lie apart.
func softmaxLine[T vec.Float](y, x []T, n, step int) {
	vec.ClearUppers()
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

func logSoftmaxLine[T vec.Float](y, x []T, n, step int) {
	vec.ClearUppers()
	m, s := lineMax(x, n, step), 0.0
	for k := 0; k < n*step; k += step {
		s += math.Exp(float64(x[k]) - m)
	}
	l := math.Log(s)
	for k := 0; k < n*step; k += step {
		y[k] = T(float64(x[k]) - m - l)
	}
}

func lineMax[T vec.Float](x []T, n, step int) float64 {
	m := x[0]
	for k := range n {
		m = max(m, x[k*step])
	}
	return float64(m)
}

func softmaxGradBody[T vec.Float](i kernels.SoftmaxGrad, t kernels.Type) parallel.Body {
	outer, n, inner := lines(t.Shape, i.Axis)
	v := vec.Best[T]()
	if inner != 1 {
		return func(outs, ins [][]byte) error {
			gx, y, gy := device.As[T](outs[0]), device.As[T](ins[0]), device.As[T](ins[1])
			eachLine(outer, n, inner, func(at int) { softmaxGradLine(i.Log, gx[at:], y[at:], gy[at:], n, inner) })
			return nil
		}
	}
	return parallel.Rows(outer, n, func(outs, ins [][]byte, from, to int) {
		gx, y, gy := device.As[T](outs[0])[:to*n], device.As[T](ins[0]), device.As[T](ins[1])
		s := scratch.Take(8 * n)
		defer s.Free()
		p := scratch.Elems[T](s)[:n]
		rows(gx, n, from, func(at int) {
			gx, y, gy := gx[at:at+n], y[at:at+n], gy[at:at+n]
			if i.Log {
				v.Exp(p, y)
				v.AddScaled(gx, gy, p, T(-v.Sum(gy)))
			} else {
				s := v.Dot(y, gy)
				v.Shift(p, gy, T(-s))
				v.Mul(gx, p, y)
			}
		})
	})
}

func softmaxGradLine[T vec.Float](log bool, gx, y, gy []T, n, step int) {
	vec.ClearUppers()
	s := 0.0
	for k := 0; k < n*step; k += step {
		if log {
			s += float64(gy[k])
		} else {
			s += float64(gy[k]) * float64(y[k])
		}
	}
	for k := 0; k < n*step; k += step {
		if log {
			gx[k] = T(float64(gy[k]) - math.Exp(float64(y[k]))*s)
		} else {
			gx[k] = T(float64(y[k]) * (float64(gy[k]) - s))
		}
	}
}

// labelReader is idReader for the labels of the rows that there are, for a loss or its gradient.
func labelReader(asked kernels.Instr, i kernels.CrossEntropy, in []kernels.Type) func(raw []byte, n int) (idList, error) {
	size, read := in[1].Dtype.Size(), idReader(asked, in[1].Dtype)
	return func(raw []byte, n int) (idList, error) {
		l, err := read(raw[i.First*size:][:in[0].Shape[0]*size], n)
		if err != nil {
			if wrong := (*kernels.IndexError)(nil); errors.As(err, &wrong) {
				wrong.At += i.First
			}
		}
		return l, err
	}
}

func crossEntropyBody[T vec.Float](i kernels.CrossEntropy, in []kernels.Type) parallel.Body {
	width, labels := in[0].Shape[1], labelReader(i, i, in)
	c, v := i.Of(width), vec.Best[T]()
	return func(outs, ins [][]byte) error {
		logits := device.As[T](ins[0])
		labels, err := labels(ins[1], c)
		if err != nil {
			return err
		}
		loss := 0.0
		for r := range labels.len() {
			row := logits[r*width:][:c]
			m, l := logSumExp(v, row)
			loss += l + float64(m) - float64(row[labels.at(r)])
		}
		device.As[T](outs[0])[0] = T(loss / float64(labels.len()))
		return nil
	}
}

func crossEntropyGradBody[T vec.Float](i kernels.CrossEntropyGrad, in []kernels.Type) parallel.Body {
	width, labels := in[0].Shape[1], labelReader(i, kernels.CrossEntropy(i), in)
	c, v := kernels.CrossEntropy(i).Of(width), vec.Best[T]()
	return func(outs, ins [][]byte) error {
		gx, logits := device.As[T](outs[0]), device.As[T](ins[0])
		labels, err := labels(ins[1], c)
		if err != nil {
			return err
		}
		scale := float64(device.As[T](ins[2])[0]) / float64(labels.len())
		for r := range labels.len() {
			row, g := logits[r*width:][:c], gx[r*width:][:c]
			clear(gx[r*width+c : (r+1)*width])
			s := v.ExpSum(g, row, v.Max(row))
			label := labels.at(r)
			p := float64(g[label]) / s
			v.Scale(g, g, T(scale/s))
			g[label] = T((p - 1) * scale)
		}
		return nil
	}
}
