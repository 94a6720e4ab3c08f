package file

import (
	"maps"
	"slices"
	"time"

	"github.com/weft-project/weft/internal/flock"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// locked runs do with the file locked and everything in it read.
func (f *File) locked(o *kv.Operation, a access, do func() error) error {
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
func (f *File) rest(o *kv.Operation, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-f.done:
		return kv.ErrClosed
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
		return false, kv.ErrClosed
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
func (f *File) replay(cmd state.Command) error {
	const others state.ClientID = 0
	out := f.state.Apply(others, cmd, nil)
	f.changes = f.changes[:0]
	for _, r := range out {
		if r.To != others {
			f.replyTo(r)
		} else if r.Err != nil {
			return r.Err
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
		for _, r := range f.state.Apply(id, cmd, nil) {
			f.replyTo(r)
		}
		if cmd.Op != state.OpWatch {
			continue
		}
		old, was := before.Value(cmd.Key)
		value, is := f.state.Value(cmd.Key)
		news := state.Reply{To: id, Op: state.OpNews, Key: cmd.Key, Old: old, Value: value, N: -1}
		switch {
		case was && !is:
			news.Event = kv.Deleted
		case is && !was:
			news.Event = kv.Created
		case string(old) == string(value):
			continue
		}
		f.replyTo(news)
	}
}

// apply does a command as client id and writes down what it changes, or changes nothing.
func (f *File) apply(id state.ClientID, cmd state.Command) (own state.Reply, answered bool, err error) {
	f.changes = f.changes[:0]
	out := f.state.Apply(id, cmd, nil)
	var records []byte
	for _, ch := range f.changes {
		records = f.appendChange(records, ch)
	}
	if len(records) > 0 {
		if err := f.log.append(f.length, records); err != nil {
			f.restore()
			return state.Reply{}, false, err
		}
		f.length = f.log.size
	}
	for _, r := range out {
		if r.To == id && r.Op == cmd.Op {
			own, answered = r, true
		} else {
			f.replyTo(r)
		}
	}
	return own, answered, own.Err
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

func (f *File) appendChange(b []byte, cmd state.Command) []byte {
	switch cmd.Op {
	case state.OpAppend:
		whole, _ := f.state.Value(cmd.Key)
		return appendRecord(b, cmd.Key, whole)
	case state.OpDelete:
		return appendRecord(b, tombstone+cmd.Key, nil)
	case state.OpPush:
		return appendRecord(b, pushPrefix+cmd.Key, cmd.Value)
	case state.OpPop:
		return appendRecord(b, popPrefix+cmd.Key, nil)
	case state.OpMultiSet:
		if len(cmd.Pairs) > 1 {
			b = appendBatch(b, cmd.Pairs)
		}
		return appendPairs(b, cmd.Pairs)
	}
	return appendRecord(b, cmd.Key, cmd.Value)
}

// replyTo gives a visit its answer, or news.
func (f *File) replyTo(r state.Reply) {
	if v, there := f.visits[r.To]; there && v.hear(r) {
		f.dropLocked(r.To)
	}
}

func (f *File) tellAll(r state.Reply) {
	for id := range f.visits {
		r.To = id
		f.replyTo(r)
	}
}

func (f *File) dropLocked(id state.ClientID) {
	delete(f.visits, id)
	f.state.Drop(id)
}

// drop ends a visit, if it has not ended.
func (f *File) drop(id state.ClientID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dropLocked(id)
}

func (f *File) newID() state.ClientID {
	f.last++
	return f.last
}

// stay runs a command as client id, for whom hear gets the answer and all that follows until it
// says that it needs no more.
func (f *File) stay(id state.ClientID, cmd state.Command, hear func(state.Reply) (done bool)) error {
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
		f.tellAll(state.Reply{Err: err})
	}
	f.polling = len(f.visits) > 0
	return busy, f.polling
}
