package store

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-project/weft/internal/flock"
)

// locked runs do with the file locked and everything in it read.
func (f *File) locked(o *Operation, a access, do func() error) error {
	for wait := 50 * time.Microsecond; ; wait = min(2*wait, f.cfg.Poll) {
		busy, err := f.try(a, do)
		if !busy {
			return err
		}
		if err := f.rest(o, wait); err != nil {
			return err
		}
	}
}

// rest waits for d, or less if the operation or the store ends.
func (f *File) rest(o *Operation, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-f.done:
		return ErrClosed
	case <-o.Context.Done():
		return o.Over()
	}
}

// try is locked where the lock is free.
func (f *File) try(a access, do func() error) (busy bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.done:
		return false, ErrClosed
	default:
	}
	length, fresh, busy, err := f.log.lock(a)
	if fresh {
		f.renew()
	}
	if busy || err != nil {
		return busy, err
	}
	if file := f.log.file; file != nil {
		defer func() {
			if e := flock.Unlock(file); err == nil {
				err = e
			}
		}()
	}
	if err := f.catchUp(length); err != nil {
		return false, err
	}
	return false, do()
}

// catchUp reads what others have appended since we looked.
func (f *File) catchUp(length int64) error {
	same, err := f.log.grown(length)
	if err != nil {
		return err
	}
	if !same {
		f.log.rewind()
		f.renew()
	}
	f.length = length
	if err := f.log.read(length, f.replay); err != nil {
		return err
	}
	f.resume()
	return nil
}

// replay applies what others have changed.
func (f *File) replay(cmd command) error {
	const others clientID = 0
	out := f.state.apply(others, cmd, nil)
	f.changes = f.changes[:0]
	for _, r := range out {
		if r.to != others {
			f.tell(r)
		} else if r.err != nil {
			return r.err
		}
	}
	return nil
}

// renew begins a state for another log. Who visits comes into it when that has been read.
func (f *File) renew() {
	if f.before == nil {
		f.before = f.state
	}
	f.state = f.newState()
}

// resume lets the visits go on in a new state. Watchers hear of what is different.
func (f *File) resume() {
	before := f.before
	if f.before = nil; before == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(f.visits)) {
		cmd := f.visits[id].cmd
		for _, r := range f.state.apply(id, cmd, nil) {
			f.tell(r)
		}
		if cmd.op != opWatch {
			continue
		}
		old, was := before.value(cmd.key)
		value, is := f.state.value(cmd.key)
		news := reply{to: id, op: opNews, key: cmd.key, old: old, value: value, n: -1}
		switch {
		case was && !is:
			news.event = Deleted
		case is && !was:
			news.event = Created
		case string(old) == string(value):
			continue
		}
		f.tell(news)
	}
}

// apply does a command as client id and writes down what it changes, or changes nothing.
func (f *File) apply(id clientID, cmd command) (own reply, answered bool, err error) {
	f.changes = f.changes[:0]
	out := f.state.apply(id, cmd, nil)
	var records []byte
	for _, ch := range f.changes {
		records = f.appendChange(records, ch)
	}
	if len(records) > 0 {
		if err := f.log.append(f.length, records); err != nil {
			f.restore()
			return reply{}, false, err
		}
		f.length = f.log.size
	}
	for _, r := range out {
		if r.to == id && r.op == cmd.op {
			own, answered = r, true
		} else {
			f.tell(r)
		}
	}
	return own, answered, own.err
}

// restore takes back what could not be written.
func (f *File) restore() {
	end := f.log.size
	f.log.rewind()
	f.state = f.newState()
	if f.log.read(end, f.replay) != nil {
		f.log.rewind() // whoever comes next finds out
	}
	f.before = f.state // as nobody has heard of it
	f.resume()
}

func (f *File) appendChange(b []byte, cmd command) []byte {
	switch cmd.op {
	case opAppend:
		whole, _ := f.state.value(cmd.key)
		return appendRecord(b, cmd.key, whole)
	case opDelete:
		return appendRecord(b, tombstone+cmd.key, nil)
	case opPush:
		return appendRecord(b, pushPrefix+cmd.key, cmd.value)
	case opPop:
		return appendRecord(b, popPrefix+cmd.key, nil)
	case opMultiSet:
		if len(cmd.pairs) > 1 {
			b = appendBatch(b, cmd.pairs)
		}
		return appendPairs(b, cmd.pairs)
	}
	return appendRecord(b, cmd.key, cmd.value)
}

// tell gives a visit its answer, or news.
func (f *File) tell(r reply) {
	if v, there := f.visits[r.to]; there && v.hear(r) {
		f.dropLocked(r.to)
	}
}

func (f *File) tellAll(r reply) {
	for id := range f.visits {
		r.to = id
		f.tell(r)
	}
}

func (f *File) dropLocked(id clientID) {
	delete(f.visits, id)
	f.state.drop(id)
}

// drop ends a visit, if it has not ended.
func (f *File) drop(id clientID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(id)
}

func (f *File) newID() clientID {
	f.last++
	return f.last
}

// stay runs a command as client id, for whom hear gets the answer and all that follows until it
// says that it needs no more.
func (f *File) stay(id clientID, cmd command, hear func(reply) (done bool)) error {
	r, answered, err := f.apply(id, cmd)
	if err != nil || answered && hear(r) {
		return err
	}
	f.visits[id] = visit{cmd, hear}
	if !f.polling {
		f.polling = true
		f.poll.Go(f.look)
	}
	return nil
}

// look looks at the file until there are no visits.
func (f *File) look() {
	for wait := f.cfg.Poll; ; {
		select {
		case <-time.After(wait):
		case <-f.done:
			return
		}
		busy, goOn := f.glance()
		if !goOn {
			return
		}
		if wait = f.cfg.Poll; busy {
			wait = min(wait, time.Millisecond)
		}
	}
}

// glance tells the visits what is new. goOn says whether there are any left.
func (f *File) glance() (busy, goOn bool) {
	f.mu.Lock()
	idle := len(f.visits) > 0 && f.before == nil && f.log.idle()
	f.mu.Unlock()
	if idle {
		return false, true
	}
	busy, err := f.try(read, func() error { return nil })
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.tellAll(reply{err: err})
	}
	f.polling = len(f.visits) > 0
	return busy, f.polling
}
