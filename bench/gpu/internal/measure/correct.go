package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/bench/gpu/internal/flags"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels/gpu"
)

// checked is a line of correct.
type checked struct {
	line
	GradientsOff     float64            `json:"gradients_off"` // the largest of those
	GradientsAllowed float64            `json:"gradients_allowed"`
	Gradients        map[string]float64 `json:"gradients,omitempty"` // by parameter: how far from the CPU's in float64, as a share of its length
}

// correct computes the gradients of models at small sizes here, and on the CPU in float64, and
// compares them by parameter; then it trains the models some steps, and compares the losses with
// the CPU's.
func (b *bench) correct(context.Context) (err error) {
	b.fp8 = 1 // the sizes are small
	defer func() { b.fp8 = 0 }()
	for _, k := range []struct {
		name string
		m    model
	}{{"mlp-small", newSmall(b.check.small)}, {"mlp-large", newLarge(b.check.large)}, {"gpt2-small", newGPT(b.check.gpt)}, {"convnet", newConv(b.check.conv)}} {
		right, e := k.m.right()
		if e != nil {
			return e
		}
		for _, p := range precisions {
			l := checked{line: line{Case: "correct", Op: k.name, Mode: p.name}}
			err = errors.Join(err, b.tellMore(&l.line, &l, func() error {
				return b.counted(k.name+" "+p.name, p.is, func(dev *device.Accelerator, _ *clock) error { return l.compare(k.m, dev, p.is, right) })
			}))
		}
	}
	return err
}

// tellMore is tell for a line that is part of one that has more to say.
func (b *bench) tellMore(l *line, more any, run func() error) error {
	err := guarded(run)
	if l.Peer = "weft " + b.commit; err != nil {
		l.Error = err.Error()
	}
	if e := b.out.Encode(more); e != nil {
		return e
	}
	if err != nil {
		return flags.ErrFailed
	}
	return nil
}

// truth is what the CPU says of a model: gradients in float64 at the disturbed parameters, and
// losses of steps from where it begins.
type truth struct {
	gradients
	losses []float64
}

func (m model) right() (t truth, err error) {
	if t.gradients, err = m.disturbed().wide().on(device.Host()).gradients(); err != nil {
		return t, err
	}
	t.losses, err = m.on(device.Host()).losses(6)
	return t, err
}

// compare holds a model on a device against the truth.
func (l *checked) compare(m model, dev device.Device, p gpu.Precision, right truth) error {
	got, err := m.disturbed().on(dev).gradients()
	if err != nil {
		return err
	}
	err = l.gradients(m.names, got, right.gradients, m.allowed(p))
	losses, e := m.on(dev).losses(len(right.losses))
	if e != nil {
		return errors.Join(err, e)
	}
	by := off(losses, right.losses)
	l.Off, l.OffAllowed = &by, [...]float64{gpu.Float32: 1e-4, gpu.TF32: 1e-2, gpu.BF16: 3e-2, gpu.FP8: 1e-1}[p]
	if by > l.OffAllowed {
		err = errors.Join(err, fmt.Errorf("training: losses %v, on the CPU %v: more than %g off", losses, right.losses, l.OffAllowed))
	}
	return err
}

// roundings is how many roundings of the products' factors a gradient may be off, as a share of its
// length: 18 were the most where all was right, and a fault is worth hundreds. At a kink, of a ReLU
// or a maximum, some elements fall on the other side; their share is a rounding's, and what they
// are of a length is its root. e4m3 rounds most numbers by a 16th at most, and gradients were
// 0.15 off, or 0.22 with kinks.
const (
	roundings     = 40
	kinkRoundings = 2
)

func (m model) allowed(p gpu.Precision) float64 {
	one := math.Ldexp(1, -[...]int{gpu.Float32: 24, gpu.TF32: 10, gpu.BF16: 9, gpu.FP8: 7}[p])
	most := roundings * one
	if m.kinks {
		most += kinkRoundings * math.Sqrt(one)
	}
	return most
}

// mostNamed is of how many gradients an error speaks, the worst first; the line has all.
const mostNamed = 8

// gradients compares those of each parameter, and the loss.
func (l *checked) gradients(names []string, got, want gradients, most float64) error {
	l.Gradients, l.GradientsAllowed = map[string]float64{}, most
	var wrong []string
	for k, name := range names {
		by := apart(got.of[k], want.of[k])
		l.Gradients[name], l.GradientsOff = by, max(l.GradientsOff, by)
		if by > most {
			wrong = append(wrong, name)
		}
	}
	slices.SortStableFunc(wrong, func(a, b string) int { return cmp.Compare(l.Gradients[b], l.Gradients[a]) })
	for k, name := range wrong {
		wrong[k] = fmt.Sprintf("%s by %.2g", name, l.Gradients[name])
	}
	if more := len(wrong) - mostNamed; more > 0 {
		wrong = append(wrong[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	var err error
	if by := off([]float64{got.loss}, []float64{want.loss}); by > most {
		err = fmt.Errorf("the loss is %g; in float64 on the CPU it is %g", got.loss, want.loss)
	}
	if wrong != nil {
		err = errors.Join(err, fmt.Errorf("gradients are off from the CPU's in float64, of whose length %.2g is allowed: %s", most, strings.Join(wrong, ", ")))
	}
	return err
}

// gradients are a loss and its gradient for each parameter, in order.
type gradients struct {
	loss float64
	of   [][]float64
}

// gradients computes them where the model is.
func (m model) gradients() (g gradients, err error) {
	arena := autodiff.NewArena("gradients")
	defer arena.Free()
	batch, err := m.adopted(arena)
	if err != nil {
		return g, err
	}
	loss := m.loss(m.params, batch)
	grads, err := autodiff.Backward(loss)
	if err != nil {
		return g, err
	}
	defer grads.Free()
	if g.loss, err = loss.Item(); err != nil {
		return g, err
	}
	for k, p := range m.params {
		d := grads.Of(p)
		if d == nil {
			return g, fmt.Errorf("there is no gradient of %s", m.names[k])
		}
		v, err := autodiff.Values[float64](autodiff.Cast(autodiff.To(d, device.Host()), device.Float64))
		if err != nil {
			return g, fmt.Errorf("the gradient of %s: %w", m.names[k], err)
		}
		g.of = append(g.of, v)
	}
	return g, nil
}

// wide is the model in float64.
func (m model) wide() model {
	widened := func(all tensors) tensors {
		out := make(tensors, len(all))
		for k, t := range all {
			if out[k] = t.Detach(); t.Dtype() == device.Float32 {
				out[k] = autodiff.Cast(t.Detach(), device.Float64)
			}
		}
		return out
	}
	m.params, m.batch = widened(m.params), widened(m.batch)
	return m
}

// disturbed moves the parameters away from where they begin: there a scale is 1, a shift is 0, and
// attention looks at all it sees nearly alike, so that much could be wrong unseen.
func (m model) disturbed() model {
	src, params := source(9), make(tensors, len(m.params))
	for k, p := range m.params {
		if len(p.Shape()) > 1 {
			params[k] = autodiff.Scale(p.Detach(), 2)
		} else {
			params[k] = autodiff.Add(p.Detach(), autodiff.NormalFrom(src, 0.2, p.Shape()...))
		}
	}
	m.params = params
	return m
}

// apart is the length of the difference of two gradients, as a share of the length of the right
// one.
func apart(got, want []float64) float64 {
	var d, n float64
	for k := range want {
		d += (got[k] - want[k]) * (got[k] - want[k])
		n += want[k] * want[k]
	}
	return finite(math.Sqrt(d / n))
}

// off is by how much losses differ, at most, as a share.
func off(got, want []float64) (most float64) {
	for k := range want {
		most = max(most, finite(math.Abs(got[k]-want[k])/math.Abs(want[k])))
	}
	return most
}

// finite is a number, and the largest one for what is none.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return math.MaxFloat64
	}
	return v
}
