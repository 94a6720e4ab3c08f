package shard

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/parallel/internal/host"
	"github.com/weft-project/weft/parallel/internal/losses"
	"github.com/weft-project/weft/parallel/internal/peers"
)

// Gradients are those of a rank's shards, by shard.
type Gradients = map[*autodiff.Tensor]*autodiff.Tensor

// Backward gives the gradients of this rank's shards, of the mean over all rows of all ranks. loss
// is the mean over this rank's rows, a scalar. It may be nil where there are none, and is not
// looked at then. A parameter that no rank used has no gradient, on any rank. All ranks call it.
//
// Gradients belong to the arena of the loss, or to nobody. The backward is this worker's alone: it
// does not go back through calls. Where it fails it fails on all ranks.
func (s *Shards) Backward(c context.Context, loss *autodiff.Tensor, rows int) (Gradients, error) {
	return s.backward(c, rows, loss.Owner(), func(weight float64) error {
		return losses.Backward(loss, weight, func(_, grad *autodiff.Tensor) error {
			autodiff.Release(grad) // of a leaf that is not spread
			return nil
		})
	})
}

// BackwardBy is Backward with a backward of the caller's own: one of a pass (ctx.BackwardWith), or
// of a stage of a pipeline, whose roots are no loss. run is called once, unless rows is 0. It runs
// one backward, with the weight as the gradient of the loss; a stage whose gradients come from
// another one, which has the same rows, leaves the weight to that. The gradients are nobody's.
func (s *Shards) BackwardBy(c context.Context, rows int, run func(weight float64) error) (Gradients, error) {
	return s.backward(c, rows, nil, run)
}

// backward is one backward under way.
type backward struct {
	c     context.Context
	what  string
	loads []*load   // by layer; nil until its gradients leave
	used  []float32 // 1 for each parameter that was used here
}

// load is the gradients of a layer on their way.
type load struct {
	done   chan struct{}
	shares []*device.Buffer // of the sums, by flat
	err    error
}

func (s *Shards) backward(c context.Context, rows int, owner *autodiff.Arena, run func(weight float64) error) (Gradients, error) {
	b, failed := s.startBackward(c)
	failed = cmp.Or(failed, losses.Countable(0, rows, s.ranks()))
	if run == nil {
		failed = cmp.Or(failed, fmt.Errorf("%w: the backward is nil", autodiff.ErrFunction))
	}
	if failed == nil && rows > 0 {
		failed = run(float64(rows) / s.total)
	}
	total, err := s.complete(b, rows, failed)
	defer b.letGo()
	if err != nil {
		return nil, fmt.Errorf("shard: Backward: %w", err)
	}
	grads, err := s.gradients(b, s.total/total, owner)
	s.total = total
	if err != nil {
		return nil, fmt.Errorf("shard: Backward: %w", err)
	}
	return grads, nil
}

// ranks is how many there are, across groups too.
func (s *Shards) ranks() int {
	if s.across == nil {
		return s.g.Size()
	}
	return s.g.Size() * s.across.Size()
}

// startBackward begins a backward. The forward before is finished.
func (s *Shards) startBackward(c context.Context) (*backward, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.finishWalk(c)
	s.backs++
	b := &backward{c: c, what: fmt.Sprintf("backward %d", s.backs), loads: make([]*load, len(s.layers)), used: make([]float32, len(s.whole))}
	s.walk = back(b.what, s.there())
	s.back = b
	return b, err
}

// takeGradients has the gradients of a layer leave.
func (s *Shards) takeGradients(l *layer, grads []*autodiff.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.back
	if b == nil || b.loads[l.number] != nil {
		return fmt.Errorf("%w: those of layer %d", ErrOutside, l.number)
	}
	flats, err := s.packed(l, grads)
	if err != nil {
		return err
	}
	for i, g := range grads {
		if g != nil {
			b.used[l.first+i] = 1
		}
	}
	if s.stage != Zero1 {
		s.dropLayer(l)
	}
	s.reduce(b, l, flats)
	return nil
}

// packed is gradients as they travel, zeros where there are none.
func (s *Shards) packed(l *layer, grads []*autodiff.Tensor) (flats []*device.Buffer, err error) {
	for _, f := range l.flats {
		all, _ := f.bytes()
		b, mem, err := host.Zeros(all)
		if err != nil {
			host.Release(flats...)
			return nil, err
		}
		flats = append(flats, b)
		for j, i := range f.params {
			if grads == nil || grads[i-l.first] == nil {
				continue
			}
			off, _ := f.spot(j)
			value, err := host.Read(mem[off:], grads[i-l.first])
			if err == nil && s.check && !peers.Finite(value, f.dtype) {
				err = peers.NotFinite(s.g, s.names[i])
			}
			if err != nil {
				host.Release(flats...)
				return nil, err
			}
		}
	}
	return flats, nil
}

// reduce begins to sum a layer's gradients over all ranks. It takes the flats over; where there are
// none it fails on all.
func (s *Shards) reduce(b *backward, l *layer, flats []*device.Buffer) {
	sum := &load{done: make(chan struct{}), shares: make([]*device.Buffer, len(l.flats))}
	b.loads[l.number] = sum
	go func() {
		defer close(sum.done)
		defer host.Release(flats...)
		for k, f := range l.flats {
			var in *device.Buffer
			if flats != nil {
				in = flats[k]
			}
			share, err := s.shareOf(s.scoped(b.c, fmt.Sprintf("reduce %d", l.number), b.what), f, in)
			sum.shares[k], sum.err = share, cmp.Or(sum.err, err)
		}
	}()
}

// shareOf is this rank's share of the sums.
func (s *Shards) shareOf(c context.Context, f *flat, in *device.Buffer) (share *device.Buffer, err error) {
	if s.g.Size() == 1 && in != nil {
		share = in.Retain()
	} else {
		share, err = s.g.ReduceScattered(c, collective.Sum, f.dtype, in)
	}
	if s.across == nil || s.across.Size() == 1 {
		return share, err
	}
	defer host.Release(share)
	all, failed := s.across.AllReduced(c, collective.Sum, f.dtype, share)
	return all, cmp.Or(err, failed)
}

// complete takes part in all that this rank's backward has not, and waits for the sums. It gives
// the rows of all ranks.
func (s *Shards) complete(b *backward, rows int, failed error) (total float64, err error) {
	if err := s.retire(b); err != nil {
		return 0, err
	}
	for k := len(s.layers) - 1; k >= 0; k-- {
		if b.loads[k] == nil {
			flats, err := s.packed(s.layers[k], nil)
			failed = cmp.Or(failed, err)
			s.reduce(b, s.layers[k], flats)
			<-b.loads[k].done
		}
	}
	total, someFailed, err := s.tell(b, rows, failed)
	for _, l := range b.loads {
		<-l.done
		err = cmp.Or(err, l.err)
	}
	switch {
	case err == nil && someFailed:
		return 0, cmp.Or(s.outcome(b.c, failed), parallel.ErrFailed)
	case err != nil:
		return 0, cmp.Or(failed, err)
	case total == 0:
		return 0, fmt.Errorf("%w: no rank has any", parallel.ErrRows)
	}
	return total, nil
}

// retire ends the gathering of a backward. It fails where ranks did different things.
func (s *Shards) retire(b *backward) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.finishWalk(b.c) // whoever needed it was told
	s.back = nil
	for _, l := range s.layers {
		s.dropLayer(l)
	}
	return s.broken()
}

// tell sums up what ranks tell of the step: their rows, whether one has failed, and which
// parameters were used, which b.used has then.
func (s *Shards) tell(b *backward, rows int, failed error) (total float64, someFailed bool, err error) {
	header := peers.Header(rows, failed, b.used)
	c := s.scoped(b.c, "steps", b.what)
	for _, g := range []*collective.Group{s.g, s.across} {
		if g != nil && g.Size() > 1 {
			err = cmp.Or(err, collective.AllReduce(c, g, header, collective.Sum))
		}
	}
	total, someFailed, b.used = peers.ReadHeader(header)
	return total, someFailed, err
}

// outcome is why a rank has failed, the same on all.
func (s *Shards) outcome(c context.Context, own error) error {
	c = collective.Scope(c, "shards "+s.id)
	for _, g := range []*collective.Group{s.g, s.across} {
		if g == nil {
			continue
		}
		if err := peers.Outcome(c, g, own); err != nil {
			own = err
		}
	}
	return own
}

// gradients are the sums as tensors, times a factor, by shard.
func (s *Shards) gradients(b *backward, factor float64, owner *autodiff.Arena) (Gradients, error) {
	grads := Gradients{}
	for k, l := range s.layers {
		for m, f := range l.flats {
			if owner == nil { // then the collector finds it with the gradients
				b.loads[k].shares[m].Disown()
			}
			for j, i := range f.params {
				if b.used[i] == 0 {
					continue
				}
				off, n := f.inShare(j)
				value, err := host.Part(l.dev, b.loads[k].shares[m], off, n)
				if err != nil {
					return nil, err
				}
				if grads[s.parts[i]], err = host.Gradient(s.parts[i], value, l.dev, factor, owner); err != nil {
					return nil, err
				}
			}
		}
	}
	return grads, nil
}

func (b *backward) letGo() {
	for _, l := range b.loads {
		if l != nil {
			<-l.done
			host.Release(l.shares...)
		}
	}
}
