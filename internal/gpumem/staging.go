package gpumem

import (
	"errors"
	"github.com/weft-project/weft/device/cuda"
	"sync"
)

// stageBytes is how much pinned memory a download goes through at a time; there are two such
// pieces, in turns.
const stageBytes = 4 << 20

// staging is pinned memory that downloads go through, in two pieces: while one is on its way the
// other is emptied.
type staging struct {
	driver cuda.Driver

	mu     sync.Mutex
	two    [2]piece
	opened bool
}

// piece is pinned memory; done happens when the stream has used it.
type piece struct {
	mem  []byte
	done cuda.Event
	busy bool
}

// ready makes what is there from the first download on.
func (s *staging) ready() (err error) {
	if s.opened {
		return nil
	}
	for k := range s.two {
		p := &s.two[k]
		if p.mem == nil {
			if p.mem, err = s.driver.Pin(stageBytes); err != nil {
				return err
			}
		}
		if p.done == nil {
			if p.done, err = s.driver.Event(); err != nil {
				return err
			}
		}
	}
	s.opened = true
	return nil
}

// pieces cuts n bytes; submit puts a part's copy into a stream, and take sees it when that is done.
func (s *staging) pieces(n int, submit func(p *piece, from, to int) error, take func(p *piece, from, to int)) error {
	if err := s.ready(); err != nil {
		return err
	}
	var began [2][2]int
	finish := func(k int) error {
		p := &s.two[k]
		if !p.busy {
			return nil
		}
		p.busy = false
		if err := p.done.Sync(); err != nil {
			return err
		}
		take(p, began[k][0], began[k][1])
		return nil
	}
	k := 0
	for from := 0; from < n; from += stageBytes {
		to := min(from+stageBytes, n)
		if err := finish(k); err != nil {
			return err
		}
		if err := submit(&s.two[k], from, to); err != nil {
			return err
		}
		s.two[k].busy, began[k] = true, [2]int{from, to}
		k ^= 1
	}
	return errors.Join(finish(k), finish(k^1))
}

func (s *staging) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for k := range s.two {
		p := &s.two[k]
		if p.mem != nil {
			errs = append(errs, s.driver.Unpin(p.mem))
		}
		if p.done != nil {
			errs = append(errs, p.done.Close())
		}
		*p = piece{}
	}
	s.opened = false
	return errors.Join(errs...)
}
