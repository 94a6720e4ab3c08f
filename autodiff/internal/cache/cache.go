package cache

import "sync/atomic"

// Bounded keeps what was made for keys, a bounded number: when it is full, something goes that was
// not used since the last look at it. It knows keys by their hashes; whether a find is for the very
// key is the caller's to check. [Bounded.Recent] is for anyone at any time, the others are for who
// holds the lock that the cache is under.
type Bounded[V any] struct {
	front [16]atomic.Pointer[kept[V]] // what was found last, by hash
	by    map[uint64]*kept[V]
	ring  []*kept[V] // what by holds
	hand  int        // of the ring, as of a clock
}

type kept[V any] struct {
	hash uint64
	used atomic.Bool // since the hand went past
	of   V
}

// Recent is what was found or put last among the hashes with h's place, where that is h's.
func (s *Bounded[V]) Recent(h uint64) (v V, ok bool) {
	k := s.front[h%uint64(len(s.front))].Load()
	if k == nil || k.hash != h {
		return v, false
	}
	if !k.used.Load() {
		k.used.Store(true)
	}
	return k.of, true
}

// Find is what was put for a hash.
func (s *Bounded[V]) Find(h uint64) (v V, ok bool) {
	k := s.by[h]
	if k == nil {
		return v, false
	}
	k.used.Store(true)
	s.front[h%uint64(len(s.front))].Store(k)
	return k.of, true
}

// Put keeps v, in place of what has the same hash or, where most are kept, of another; it says
// whether it was so.
func (s *Bounded[V]) Put(h uint64, v V, most int) (dropped bool) {
	k := &kept[V]{hash: h, of: v}
	if s.by == nil {
		s.by = map[uint64]*kept[V]{}
	}
	was, at := s.by[h], len(s.ring)
	switch {
	case was != nil:
		for at = range s.ring {
			if s.ring[at] == was {
				break
			}
		}
	case len(s.ring) == most:
		for s.ring[s.hand].used.Swap(false) {
			s.hand = (s.hand + 1) % most
		}
		at, was, dropped = s.hand, s.ring[s.hand], true
		s.hand = (s.hand + 1) % most
	}
	if was != nil {
		delete(s.by, was.hash)
		s.front[was.hash%uint64(len(s.front))].CompareAndSwap(was, nil)
		s.ring[at] = k
	} else {
		s.ring = append(s.ring, k)
	}
	s.by[h] = k
	s.front[h%uint64(len(s.front))].Store(k)
	return dropped
}

// Mix takes one more word into a hash.
func Mix(h, v uint64) uint64 {
	h = (h ^ v) * 0x9E3779B97F4A7C15
	return h ^ h>>29
}

// Len is how many are kept.
func (s *Bounded[V]) Len() int { return len(s.ring) }
