package resilient

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/vec"
	"github.com/weft-project/weft/parallel/internal/host"
)

// bucket is gradients of one dtype that travel together. Behind them stands how many members have
// failed to bring theirs. The last bucket of a team is the header, which has a count of its own.
type bucket struct {
	dtype device.Dtype
	host.Pack
}

// What the header has: sums over all members, as float64. Behind these it has for each parameter
// how many members used it.
const (
	headRows    = iota // that were computed
	headDigest         // of these rows
	headFailed         // members whose loss function failed
	headNews           // members that know of something for which all have to come together
	headClaims         // members that have caught up
	headLoss           // the mean over all rows
	headMembers        // that bring something
	headFixed
)

// header is what a member says of a step.
type header struct {
	fixed [headFixed]float64
	used  []float64
}

// lay puts parameters into buckets, from the last to the first, as a backward comes to them.
func (t *Team) lay() {
	open := map[device.Dtype]*bucket{}
	for i := range slices.Backward(t.params) {
		typ := t.params[i].Type()
		b := open[typ.Dtype]
		if b == nil {
			b = &bucket{dtype: typ.Dtype}
			open[typ.Dtype] = b
		} else if b.Bytes+typ.Bytes() > t.cfg.Bucket {
			t.layout = append(t.layout, *b)
			*b = bucket{dtype: typ.Dtype}
		}
		b.Add(i, typ.Bytes())
	}
	for _, d := range []device.Dtype{device.Float64, device.Float32} {
		if b := open[d]; b != nil {
			t.layout = append(t.layout, *b)
		}
	}
	for b := range t.layout {
		t.layout[b].Bytes += t.layout[b].dtype.Size()
	}
	t.layout = append(t.layout, bucket{dtype: device.Float64, Pack: host.Pack{Bytes: device.Float64.Size() * (headFixed + len(t.params))}})
	for _, bufs := range []*[]*device.Buffer{&t.blank, &t.mine, &t.sums, &t.last} {
		*bufs = make([]*device.Buffer, len(t.layout))
	}
	t.heads.used = make([]float64, len(t.params))
}

// contribution is what this member brings to the sum of a bucket: zeros where it has computed
// nothing, and a mark where it has failed.
func (t *Team) contribution(b int, failed bool) (*device.Buffer, error) {
	if b == len(t.layout)-1 {
		return t.headed(failed)
	}
	if failed {
		buf, mem, err := host.Zeros(t.layout[b].Bytes)
		if err == nil {
			setMark(t.layout[b].dtype, mem)
		}
		return buf, err
	}
	if t.mine[b] != nil {
		return t.mine[b].Retain(), nil
	}
	if t.blank[b] == nil { // nobody writes there, so that it serves for all steps
		buf, _, err := host.Zeros(t.layout[b].Bytes)
		if err != nil {
			return nil, err
		}
		t.blank[b] = buf
	}
	return t.blank[b].Retain(), nil
}

func setMark(d device.Dtype, mem []byte) {
	if d == device.Float32 {
		all := device.As[float32](mem)
		all[len(all)-1] = 1
		return
	}
	all := device.As[float64](mem)
	all[len(all)-1] = 1
}

// marked says whether some member has failed to bring its part of a sum.
func (t *Team) marked(b int, sum *device.Buffer) (bool, error) {
	mem, err := sum.Host()
	if err != nil {
		return false, err
	}
	switch {
	case b == len(t.layout)-1:
		return device.As[float64](mem)[headFailed] > 0, nil
	case t.layout[b].dtype == device.Float32:
		all := device.As[float32](mem)
		return all[len(all)-1] > 0, nil
	}
	all := device.As[float64](mem)
	return all[len(all)-1] > 0, nil
}

// headed is the header as it is now.
func (t *Team) headed(failed bool) (*device.Buffer, error) {
	buf, mem, err := host.Zeros(t.layout[len(t.layout)-1].Bytes)
	if err != nil {
		return nil, err
	}
	to := device.As[float64](mem)
	copy(to, t.heads.fixed[:])
	copy(to[headFixed:], t.heads.used)
	to[headMembers] = 1
	if failed {
		to[headFailed] = 1
	}
	if t.isOver() || len(t.waiting()) > 0 {
		to[headNews] = 1
	}
	if t.caughtUp() {
		to[headClaims] = 1
	}
	return buf, nil
}

// adding is a computation of some rows, whose gradients are added to the contributions.
type adding struct {
	t       *Team
	into    []*device.Buffer // by bucket: what was there before, and this
	before  []*device.Buffer // by bucket: what was there before; nil: nothing, or it is still there
	handed  []bool
	used    []float64 // by parameter
	where   map[*autodiff.Tensor]place
	missing []int       // by bucket: gradients that have not come
	full    func(b int) // is told of each bucket that nothing more comes to
}

// place is where the gradient of a parameter goes: as the k-th of a bucket.
type place struct{ param, bucket, k int }

func (t *Team) adding(full func(b int)) *adding {
	n := len(t.layout)
	a := &adding{
		t: t, into: make([]*device.Buffer, n), before: make([]*device.Buffer, n), handed: make([]bool, n), missing: make([]int, n),
		used: make([]float64, len(t.params)), where: map[*autodiff.Tensor]place{}, full: full,
	}
	for b, l := range t.layout {
		a.missing[b] = len(l.Params)
		for k, i := range l.Params {
			a.where[t.params[i]] = place{i, b, k}
		}
	}
	return a
}

// addGradient adds the gradient of a parameter. It takes over gradients of other leaves, too.
func (a *adding) addGradient(leaf, grad *autodiff.Tensor) error {
	defer autodiff.Release(grad)
	at, ours := a.where[leaf]
	if !ours {
		return nil
	}
	if err := a.addTo(at, grad); err != nil {
		return fmt.Errorf("the gradient of %s: %w", a.t.names[at.param], err)
	}
	a.used[at.param] = 1
	if a.missing[at.bucket]--; a.missing[at.bucket] == 0 {
		a.hand(at.bucket)
	}
	return nil
}

func (a *adding) addTo(at place, grad *autodiff.Tensor) error {
	mem, err := a.memory(at.bucket)
	if err != nil {
		return err
	}
	l := a.t.layout[at.bucket]
	mem = mem[l.At[at.k]:]
	if a.t.mine[at.bucket] == nil {
		_, err = host.Read(mem, grad)
		return err
	}
	return a.plus(l.dtype, mem, grad)
}

// memory is that of a bucket; at first it has what was computed before. That stays as it is, as
// others may read it.
func (a *adding) memory(b int) ([]byte, error) {
	if a.into[b] != nil {
		return a.into[b].Host()
	}
	buf, mem, err := host.Zeros(a.t.layout[b].Bytes)
	if err != nil {
		return nil, err
	}
	a.into[b] = buf
	if before := a.t.mine[b]; before != nil {
		err = before.Device().Download(mem, before, 0)
	}
	return mem, err
}

func (a *adding) plus(d device.Dtype, to []byte, grad *autodiff.Tensor) error {
	more, err := host.Read(make([]byte, grad.Type().Bytes()), grad)
	if err != nil {
		return err
	}
	to = to[:len(more)]
	switch d {
	case device.Float32:
		sum := device.As[float32](to)
		vec.Best[float32]().Add(sum, sum, device.As[float32](more))
	case device.Float64:
		sum := device.As[float64](to)
		vec.Best[float64]().Add(sum, sum, device.As[float64](more))
	default:
		return fmt.Errorf("%w: gradients of %v", errors.ErrUnsupported, d)
	}
	return nil
}

// hand makes a bucket's memory the member's contribution.
func (a *adding) hand(b int) {
	a.handed[b] = true
	if a.into[b] != nil {
		a.before[b], a.t.mine[b], a.into[b] = a.t.mine[b], a.into[b], nil
	} else {
		a.before[b] = retained(a.t.mine[b])
	}
	a.full(b)
}

// rest hands over what parameters without gradients have held up.
func (a *adding) rest() {
	for b, n := range a.missing {
		if n > 0 {
			a.hand(b)
		}
	}
}

// settle keeps the new contributions, or the old ones, when nobody uses either.
func (a *adding) settle(whole bool) {
	for b := range a.handed {
		if !whole && a.handed[b] {
			a.t.mine[b], a.before[b] = a.before[b], a.t.mine[b]
		}
	}
	host.Release(a.before...)
	host.Release(a.into...)
}

func retained(b *device.Buffer) *device.Buffer {
	if b == nil {
		return nil
	}
	return b.Retain()
}

// gradients are the sums of a step as tensors of an arena, of the parameters that some member used.
func (t *Team) gradients(sums []*device.Buffer, owner *autodiff.Arena) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	head, err := heading(sums)
	if err != nil {
		return nil, err
	}
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for b, l := range t.layout {
		for k, i := range l.Params {
			if head[headFixed+i] == 0 {
				continue
			}
			p := t.params[i]
			value, err := host.Part(t.devices[i], sums[b], l.At[k], p.Type().Bytes())
			if err == nil {
				grads[p], err = host.Gradient(p, value, t.devices[i], 1, owner)
			}
			if err != nil {
				return nil, fmt.Errorf("the sum of gradients of %s: %w", t.names[i], err)
			}
		}
	}
	return grads, nil
}

// heading is the header among sums.
func heading(sums []*device.Buffer) ([]float64, error) {
	mem, err := sums[len(sums)-1].Host()
	if err != nil {
		return nil, err
	}
	return device.As[float64](mem), nil
}
