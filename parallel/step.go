package parallel

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// step is one Backward.
type step struct {
	*Replicas
	loads []*load // the last one has the header
	spots map[int]spot
	own   []*device.Buffer // gradients that no bucket expects; a reference each
	used  []float32        // 1 for each parameter that was used here
	came  []float32        // on rank 0: the place of each in the order in which they came
	count float32          // how many came
}

// spot is where a parameter's gradient goes.
type spot struct {
	load *load
	k    int
}

func newStep(r *Replicas) *step {
	n := len(r.params)
	s := &step{Replicas: r, spots: map[int]spot{}, own: make([]*device.Buffer, n), used: make([]float32, n), came: make([]float32, n)}
	s.addLoads(r.buckets)
	return s
}

func (s *step) addLoads(buckets []bucket) {
	for b := range buckets {
		l := newLoad(&buckets[b])
		for k, i := range l.params {
			s.spots[i] = spot{l, k}
		}
		s.loads = append(s.loads, l)
	}
}

// got has a gradient of this rank's backward. Its bucket leaves as it is full.
func (s *step) got(i int, grad *autodiff.Tensor) error {
	b, err := s.plusKept(i, grad)
	if err != nil {
		return err
	}
	return s.deliver(i, b)
}

// deliver takes over a gradient.
func (s *step) deliver(i int, grad *device.Buffer) error {
	if s.check && !finite(grad, s.params[i].Dtype()) {
		_ = grad.Release() // ours
		return peers.NotFinite(s.g, s.names[i])
	}
	s.count++
	s.used[i] = 1
	if s.g.Rank() == 0 {
		s.came[i] = s.count
	}
	at, expected := s.spots[i]
	if !expected {
		s.own[i] = grad
		return nil
	}
	at.load.bring(at.k, grad)
	if at.load.missing == 0 && !at.load.header {
		close(at.load.ready)
	}
	return nil
}

// sendRest has everything leave that has not: zeros where nothing came, and the header.
func (s *step) sendRest(rows int, failed error) error {
	for i, b := range s.kept {
		if b != nil && s.used[i] == 0 && failed == nil {
			failed = s.deliver(i, b.Retain())
		}
	}
	for _, l := range s.loads {
		if l.header {
			l.err = cmp.Or(l.err, s.tell(l, rows, failed))
		}
		if l.header || l.missing > 0 {
			close(l.ready)
		}
	}
	return failed
}

// tell writes the header.
func (s *step) tell(l *load, rows int, failed error) error {
	mem, err := l.memory()
	if err != nil {
		return err
	}
	header := device.As[float32](mem)
	header[headerRows] = float32(rows)
	if failed != nil {
		header[headerRows], header[headerFailed] = 0, 1
	}
	copy(header[headerFixed:], slices.Concat(s.used, s.came))
	return nil
}

// collect makes the gradients of what the ranks have brought, and has follow what was not expected.
func (s *step) collect(c context.Context, failed error, owner *autodiff.Arena) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	for _, l := range s.loads {
		if l.err != nil {
			return nil, cmp.Or(failed, l.err)
		}
	}
	mem, err := s.loads[len(s.loads)-1].out.Host()
	if err != nil {
		return nil, err
	}
	header, n := device.As[float32](mem), len(s.params)
	total := float64(header[headerRows])
	now := order(header[headerFixed:headerFixed+n], header[headerFixed+n:headerFixed+2*n])
	switch {
	case header[headerFailed] > 0:
		return nil, cmp.Or(peers.Outcome(c, s.g, failed), ErrFailed)
	case total == 0:
		return nil, fmt.Errorf("%w: no rank has any", ErrRows)
	}
	if err := s.follow(c, now); err != nil {
		return nil, err
	}
	grads, err := s.gradients(now, s.total/total, owner)
	if !slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(s.expected))) {
		s.expected, s.buckets = now, s.layout(now, true)
	}
	s.Replicas.total = total
	return grads, err
}

// follow sends the gradients that no bucket expected, and that some rank has.
func (s *step) follow(c context.Context, now []int) (err error) {
	more := slices.DeleteFunc(slices.Clone(now), func(i int) bool { _, expected := s.spots[i]; return expected })
	first := len(s.loads)
	s.addLoads(s.layout(more, false))
	for _, l := range s.loads[first:] {
		for k, i := range l.params {
			if s.own[i] != nil {
				l.bring(k, s.own[i])
				s.own[i] = nil
			}
		}
		l.exchange(c, s.g)
		err = cmp.Or(err, l.err)
	}
	return err
}

// gradients are the sums as tensors, times a factor.
func (s *step) gradients(params []int, factor float64, owner *autodiff.Arena) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for _, i := range params {
		at, t := s.spots[i], s.params[i].Type()
		b, err := at.load.total(at.k, t.Bytes())
		if err != nil {
			return nil, err
		}
		elsewhere := b.Device() != s.devices[i]
		grad := autodiff.Wrap(t, b, owner)
		if elsewhere {
			grad = autodiff.To(grad, s.devices[i])
		}
		if factor != 1 {
			grad = autodiff.Scale(grad, factor)
		}
		if err := grad.Err(); err != nil {
			return nil, err
		}
		grads[s.params[i]] = grad
	}
	return grads, nil
}

func (s *step) letGo() {
	dropAll(s.own)
	for _, l := range s.loads {
		l.letGo()
	}
}

// NotFiniteError names a gradient that is NaN or infinite, and the first rank that has one. It is
// the same on all ranks.
type NotFiniteError = peers.NotFiniteError

// finite says whether all elements are numbers.
func finite(b *device.Buffer, d device.Dtype) bool {
	raw, err := b.Host()
	if err != nil {
		raw = make([]byte, b.Len())
		if b.Device().Download(raw, b, 0) != nil {
			return false
		}
	}
	return peers.Finite(raw[:b.Len()], d)
}
