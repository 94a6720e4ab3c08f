package parallel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/peers"
	"github.com/weft-project/weft/transport"
)

// step is one Backward.
type step struct {
	*Replicas
	loads []*load // the last one has the header
	spots map[int]spot
	own   []*autodiff.Tensor // gradients that no bucket expects, for nobody to free but this
	used  []float32          // 1 for each parameter that was used here
	came  []float32          // on rank 0: the place of each in the order in which they came
	some  []float32          // 1 for each of which only rows came
	count float32            // how many came
	whole bool               // it went well, on all ranks
}

// spot is where a parameter's gradient goes.
type spot struct {
	load *load
	k    int
}

func newStep(r *Replicas) *step {
	n := len(r.params)
	s := &step{Replicas: r, own: make([]*autodiff.Tensor, n), used: make([]float32, n), came: make([]float32, n), some: make([]float32, n)}
	if r.g.Size() > 1 {
		s.spots = map[int]spot{}
		s.addLoads(r.buckets)
	}
	return s
}

func (s *step) addLoads(buckets []bucket) {
	for b := range buckets {
		l := newLoad(&buckets[b], s.names)
		for k, i := range l.Params {
			s.spots[i] = spot{l, k}
		}
		s.loads = append(s.loads, l)
	}
}

// alone is a step of a group of one: nothing travels, and nothing is copied.
func (s *step) alone(c context.Context, rows int, failed error, owner *autodiff.Arena) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	total := float64(s.keptRows + rows)
	if failed = s.deliverKept(failed); failed != nil {
		return nil, s.whoFailed(c, failed)
	}
	if total == 0 {
		return nil, fmt.Errorf("%w: no rank has any", ErrRows)
	}
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for i, own := range s.own {
		if own == nil {
			continue
		}
		grad, err := given(own, s.total/total, owner)
		if err != nil {
			return nil, err
		}
		grads[s.params[i]] = grad
	}
	s.Replicas.total = total
	return grads, nil
}

// given is a gradient times a factor, for an owner.
func given(own *autodiff.Tensor, factor float64, owner *autodiff.Arena) (*autodiff.Tensor, error) {
	if own.IsSparse() {
		if factor != 1 { // sums are multiplied, and not what they are made of
			if one := own.Coalesce(); one != own {
				defer autodiff.Release(one)
				own = one
			}
		}
		ids, values, _ := own.Rows()
		defer autodiff.Release(ids, values)
		grad := autodiff.Sparse(own.Type().Shape[0], wrapped(ids, owner), scaled(wrapped(values, owner), factor))
		return grad, grad.Err()
	}
	grad := scaled(wrapped(own, owner), factor)
	return grad, grad.Err()
}

// wrapped is a transient's value for an owner.
func wrapped(t *autodiff.Tensor, owner *autodiff.Arena) *autodiff.Tensor {
	b, err := t.Acquire()
	if err != nil {
		return autodiff.Failed(err)
	}
	return autodiff.Wrap(t.Type(), b, owner)
}

// got takes over a gradient of this rank's backward. Its bucket leaves as it is full.
func (s *step) got(i int, grad *autodiff.Tensor) error {
	sum, err := s.plusKept(i, grad)
	if err != nil {
		return fmt.Errorf("the gradient of %s: %w", s.names[i], err)
	}
	return s.deliver(i, sum)
}

// deliver takes over a gradient.
func (s *step) deliver(i int, grad *autodiff.Tensor) error {
	if s.config.Check && !finite(grad) {
		autodiff.Release(grad)
		return peers.NotFinite(s.g, s.names[i])
	}
	s.count++
	s.used[i] = 1
	if grad.IsSparse() {
		s.some[i] = 1
	}
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

// deliverKept brings what was accumulated of parameters that the last rows did not use.
func (s *step) deliverKept(failed error) error {
	for i, sum := range s.kept {
		if sum != nil && s.used[i] == 0 && failed == nil {
			s.kept[i] = nil
			failed = s.deliver(i, sum)
		}
	}
	return failed
}

// sendRest has everything leave that has not: zeros where nothing came, and the header.
func (s *step) sendRest(rows int, failed error) error {
	failed = s.deliverKept(failed)
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
	copy(device.As[float32](mem), peers.Header(rows, failed, s.used, s.came, s.some))
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
	told := read(device.As[float32](mem), len(s.params))
	now := order(told.used, told.came)
	switch {
	case told.failed:
		return nil, s.whoFailed(c, failed)
	case told.rows == 0:
		return nil, fmt.Errorf("%w: no rank has any", ErrRows)
	}
	if err := s.follow(c, now, told.rowsOnly()); err != nil {
		return nil, err
	}
	factor := s.total / told.rows
	s.learn(now, told) // as all ranks do, whatever becomes of the gradients on this one
	return s.gradients(now, factor, owner)
}

// learn has the next step expect what this one was.
func (s *step) learn(now []int, told telling) {
	r, rowsOnly := s.Replicas, told.rowsOnly()
	s.whole = true
	r.steps++
	if ratio := r.total / told.rows; ratio < 0.5 || ratio > 2 { // what rounding has taken is of gradients of another size
		r.forget()
	}
	r.total = told.rows
	same := slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(r.expected))) && slices.Equal(rowsOnly, r.rowsOnly)
	if !same || r.steps == r.config.LowRank.From {
		r.expected, r.rowsOnly = now, rowsOnly
		r.buckets = r.layout(now, rowsOnly, true)
	}
}

// mostTogether bounds how many buckets are under way at once.
const mostTogether = 4

// room is how large buckets may be together that are under way: a step needs as much memory for
// sums as the largest of them, or two of Config.Bucket. Where all members are on one host each
// makes only its piece of a sum, and the others' are mapped.
func (s *step) room(loads []*load) int {
	room := 2 * s.limit
	for _, l := range loads {
		room = max(room, l.Bytes)
	}
	for _, m := range s.g.Members() {
		if m.Rank != s.g.Rank() && m.Lane != transport.LaneLocal {
			return room
		}
	}
	return room * s.g.Size()
}

// travel exchanges loads as they become ready, in their order. Several are under way at once, so
// that a network does not lie idle between them, as long as there is room for their sums. Each is
// numbered apart, and none begins before all those in front of it have: so ranks differ only in how
// far they are, and no two wait for each other.
func (s *step) travel(c context.Context, loads []*load) {
	room := s.room(loads)
	ended := make(chan int, len(loads))
	count, bytes := 0, 0
	for k, l := range loads {
		<-l.ready
		for count > 0 && (count == mostTogether || bytes+l.Bytes > room) {
			bytes -= <-ended
			count--
		}
		own := collective.Subscope(c, "bucket "+strconv.Itoa(k))
		if count++; count == 1 && k == len(loads)-1 { // nothing is beside it
			l.exchange(own, s.g)
			return
		}
		bytes += l.Bytes
		go func() {
			l.exchange(own, s.g)
			ended <- l.Bytes
		}()
	}
	for range count {
		<-ended
	}
}

// follow sends the gradients that no bucket expected, and that some rank has.
func (s *step) follow(c context.Context, now []int, rowsOnly []bool) (err error) {
	more := slices.DeleteFunc(slices.Clone(now), func(i int) bool { _, expected := s.spots[i]; return expected })
	first := len(s.loads)
	s.addLoads(s.layout(more, rowsOnly, false))
	for _, l := range s.loads[first:] {
		for k, i := range l.Params {
			if s.own[i] != nil {
				l.bring(k, s.own[i])
				s.own[i] = nil
			}
		}
		close(l.ready)
	}
	s.travel(collective.Subscope(c, "more"), s.loads[first:])
	for _, l := range s.loads[first:] {
		err = cmp.Or(err, l.err)
	}
	return err
}

// gradients are the sums as tensors, times a factor.
func (s *step) gradients(params []int, factor float64, owner *autodiff.Arena) (map[*autodiff.Tensor]*autodiff.Tensor, error) {
	grads := map[*autodiff.Tensor]*autodiff.Tensor{}
	for _, i := range params {
		grad, err := s.gradient(i, factor, owner)
		if err != nil {
			return nil, fmt.Errorf("the sum of gradients of %s: %w", s.names[i], err)
		}
		grads[s.params[i]] = grad
	}
	return grads, nil
}

// gradient is the sum of a parameter's gradients, times a factor.
func (s *step) gradient(i int, factor float64, owner *autodiff.Arena) (*autodiff.Tensor, error) {
	at, p := s.spots[i], s.params[i]
	if at.load.sparse {
		grad := at.load.sum.tensor(p, s.devices[i], factor, owner)
		return grad, grad.Err()
	}
	b, err := at.load.total(at.k, p.Type().Bytes(), s.devices[i])
	if err != nil {
		return nil, err
	}
	return host.Gradient(p, b, s.devices[i], factor, owner)
}

func (s *step) letGo() {
	autodiff.Release(s.own...)
	for _, l := range s.loads {
		l.letGo()
	}
}
