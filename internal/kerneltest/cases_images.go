package kerneltest

import (
	"math"
	"strings"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// window draws a window that fits into h×w, or needs padding to.
func (g gen) window(h, w int) kernels.Window {
	var v kernels.Window
	for a, n := range [2]int{h, w} {
		v.Kernel[a] = 1 + g.IntN(4)
		if g.chance(0.4) {
			v.Stride[a] = 1 + g.IntN(3)
		}
		if g.chance(0.3) {
			v.Dilation[a] = 1 + g.IntN(3)
		}
		if g.chance(0.6) {
			v.Before[a], v.After[a] = g.IntN(v.Kernel[a]+1), g.IntN(v.Kernel[a]+1)
		}
		reach := (v.Kernel[a]-1)*max(v.Dilation[a], 1) + 1
		v.After[a] += max(0, reach-n-v.Before[a]-v.After[a])
	}
	return v
}

// pool draws a window for pooling: its padding is at most half of what the kernel reaches over.
func (g gen) pool(h, w int) kernels.Window {
	v := g.window(h, w)
	for a, n := range [2]int{h, w} {
		if n == 0 {
			v.Kernel[a] += v.Kernel[a] % 2 // or padding alone could not hold it
			v.Dilation[a] = 1
		}
		reach := (v.Kernel[a]-1)*max(v.Dilation[a], 1) + 1
		v.Before[a], v.After[a] = min(v.Before[a], reach/2), min(v.After[a], reach/2)
		if n+v.Before[a]+v.After[a] < reach {
			v.Before[a], v.After[a] = reach/2, reach/2
		}
	}
	return v
}

// images draws a case of a family over images.
func (g gen) images(family string, d device.Dtype) (kernels.Instr, []Tensor) {
	side := func() int { return 1 + g.IntN(7) }
	if g.chance(0.1) {
		side = func() int { return 1 + g.IntN(30) }
	}
	s := device.Shape{g.extent() % 4, 1 + g.IntN(4), side(), side()}
	if g.chance(0.05) {
		s[1+g.IntN(3)] = 0
	}
	g.sized.images(g, s)
	draw := g.window
	if strings.Contains(family, "Pool") {
		draw = g.pool
	}
	w := draw(s[2], s[3])
	x := g.tensor(d, s)
	result := func(i kernels.Instr, in ...kernels.Type) Tensor {
		out, err := i.Infer(in)
		if err != nil {
			panic(err)
		}
		return g.tensor(d, out[0].Shape)
	}
	switch cols := (kernels.Im2col{Window: w, Rows: g.chance(0.5)}); family {
	case "Im2col":
		return cols, []Tensor{x}
	case "Col2im":
		return kernels.Col2im{Im2col: cols, Channels: s[1], Height: s[2], Width: s[3]}, []Tensor{result(cols, x.Type)}
	case "MaxPool2d":
		return kernels.MaxPool2d{Window: w}, []Tensor{g.spoiled(x)}
	case "MaxPool2dGrad":
		return kernels.MaxPool2dGrad{Window: w}, []Tensor{g.spoiled(x), result(kernels.MaxPool2d{Window: w}, x.Type)}
	case "AvgPool2d":
		return kernels.AvgPool2d{Window: w, Inside: cols.Rows}, []Tensor{x}
	case "AvgPool2dGrad":
		pool := kernels.AvgPool2d{Window: w, Inside: cols.Rows}
		return kernels.AvgPool2dGrad{AvgPool2d: pool, Height: s[2], Width: s[3]}, []Tensor{result(pool, x.Type)}
	}
	o := g.IntN(6)
	if g.chance(0.2) {
		o = 7 + g.IntN(30)
	}
	filter := g.tensor(d, device.Shape{o, s[1], w.Kernel[0], w.Kernel[1]})
	conv := kernels.Conv2d{Window: w}
	switch family {
	case "Conv2dGradX":
		return kernels.Conv2dGradX{Window: w, Height: s[2], Width: s[3]}, []Tensor{filter, result(conv, x.Type, filter.Type)}
	case "Conv2dGradW":
		return kernels.Conv2dGradW{Window: w}, []Tensor{x, result(conv, x.Type, filter.Type)}
	}
	return conv, []Tensor{x, filter}
}

// key is a seed and a counter, exact as float64.
func (g gen) key() Tensor {
	return g.filled(device.Int64, device.Shape{2}, func() float64 { return math.Trunc(g.NormFloat64() * (1 << 40)) })
}
