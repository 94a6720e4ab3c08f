package shard

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/parallel/internal/host"
)

// What is here is called under the lock.

// keeps says whether a layer stays there after its use in a forward.
func (s *Shards) keeps(l *layer) bool { return l.keep && !(l.fetch != nil && l.fetch.isVoid()) }

// there says which layers are gathered, on all ranks alike between walks.
func (s *Shards) there() []bool {
	all := make([]bool, len(s.layers))
	for k, l := range s.layers {
		all[k] = l.fetch != nil
	}
	return all
}

// newForward begins a forward. The one before is finished, and what it has left is let go of: an
// optimizer may have stepped since.
func (s *Shards) newForward() {
	for _, l := range s.layers {
		if l.inUse == 0 {
			s.dropLayer(l)
		}
	}
	s.forwards++
	s.walk, s.used = forth(fmt.Sprintf("forward %d", s.forwards), s.there()), -1
}

// finishWalk takes part in what is left of a walk, and lets go of what this rank does not use.
func (s *Shards) finishWalk(c context.Context) (err error) {
	for k, ok := s.walk.nextLayer(); ok; k, ok = s.walk.nextLayer() {
		l := s.layers[k]
		s.launch(c, l, s.back == nil && s.keeps(l))
		err = cmp.Or(err, l.fetch.wait())
		s.letGo(l)
	}
	for _, l := range s.layers { // one may be gathered ahead
		if l.inUse == 0 {
			s.letGo(l)
		}
	}
	s.used = len(s.layers) // any layer begins another forward
	return err
}

// letGo lets go of a layer that this rank does not use any more.
func (s *Shards) letGo(l *layer) {
	if l.fetch == nil {
		return
	}
	_ = l.fetch.wait() // whoever uses it is told
	if s.back == nil && s.keeps(l) {
		s.hide(l)
		return
	}
	s.dropLayer(l)
}

// startUse has a layer whole, for use.
func (s *Shards) startUse(c context.Context, k int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[k]
	defer func() { l.inUse++ }()
	if s.back != nil { // a checkpoint computes anew
		return s.want(s.back.c, l)
	}
	var err error
	if l.inUse == 0 {
		if k <= s.used {
			err = s.finishWalk(c)
			s.newForward()
		}
		s.used = k
	}
	return cmp.Or(s.want(c, l), err)
}

// endUse ends a use.
func (s *Shards) endUse(k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[k]
	if l.inUse--; l.inUse == 0 && s.back == nil {
		s.letGo(l)
	}
}

// bring is called where something reads a parameter that has no value.
func (s *Shards) bring(t *autodiff.Tensor) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.of[t]
	if s.back == nil {
		return fmt.Errorf("%w: a parameter %v of layer %d", ErrAway, t.Type(), k)
	}
	return s.want(s.back.c, s.layers[k])
}

// want has a layer whole, and begins to gather the next one.
func (s *Shards) want(c context.Context, l *layer) error {
	for _, k := range s.walk.upTo(l.number) {
		before := s.layers[k]
		s.launch(c, before, s.back != nil || before == l || s.keeps(before))
		if before == l {
			break
		}
		_ = before.fetch.wait() // whoever uses it is told
		if s.back == nil {
			s.letGo(before)
		}
	}
	if l.fetch == nil {
		return fmt.Errorf("%w: layer %d was read after its gradients had come", ErrOutside, l.number)
	}
	if err := s.show(l); err != nil {
		return err
	}
	if s.ahead() {
		return nil
	}
	if k, ok := s.walk.nextLayer(); ok {
		s.launch(c, s.layers[k], true)
	}
	return nil
}

// ahead says whether a layer is gathered that is not used yet.
func (s *Shards) ahead() bool {
	for _, l := range s.layers {
		if l.fetch != nil && !l.fetch.shown && !s.keeps(l) {
			return true
		}
	}
	return false
}

// show gives the parameters of a layer their values.
func (s *Shards) show(l *layer) error {
	f := l.fetch
	if err := f.wait(); err != nil || f.shown {
		return err
	}
	f.shown = true
	for i, v := range f.values {
		if err := s.whole[l.first+i].Put(v.Retain()); err != nil {
			return err
		}
	}
	return nil
}

// hide takes them away again.
func (s *Shards) hide(l *layer) {
	if !l.fetch.shown {
		return
	}
	l.fetch.shown = false
	for i := range l.fetch.values {
		_ = s.whole[l.first+i].Put(nil) // nothing is wrong with none
	}
}

// dropLayer lets go of a layer.
func (s *Shards) dropLayer(l *layer) {
	if l.fetch == nil {
		return
	}
	_ = l.fetch.wait() // whoever uses it is told
	s.hide(l)
	host.Release(l.fetch.values...)
	l.fetch = nil
}
