package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// watches is all that a client watches, on one connection of its own. That lives while anything is
// watched, and is made anew when it is lost.
type watches struct {
	cl   *Client
	wake chan struct{} // capacity 1: there is something to do

	mu      sync.Mutex
	keys    map[string]*watched // by the key with its slash
	many    int                 // listeners
	running bool
	last    error // why there is no connection
	link    *link // to a Weft server, whence news come; nil while there is none
	unasked []watchQuestion
	due     []watchQuestion // asked on the link, and not answered yet
	owing   int             // bytes of those
}

// watchQuestion is a command about a key. The key may be watched anew before its answer comes.
type watchQuestion struct {
	state.Command
	w *watched
}

func (q watchQuestion) size() int { return len(q.Key) + 16 }

const (
	watchLook  = 50 * time.Millisecond // how often is looked where no server tells
	watchOwing = 16 << 10              // bytes that are asked before the answers are read: nobody blocks
	watchWrite = 10 * time.Second      // for a server that does not read
)

func (ws *watches) init(cl *Client) {
	ws.cl, ws.wake, ws.keys = cl, make(chan struct{}, 1), map[string]*watched{}
}

// Watch implements Store. After a lost connection a change that was not seen is made up from what
// was there before and is now, with Dropped -1.
func (cl *Client) Watch(c context.Context, key string) (*kv.Watch, error) {
	k, cmd, err := cl.prepare(c, "watch", state.Command{Op: state.OpWatch, Key: key})
	if err != nil {
		return nil, err
	}
	ws, me, added := &cl.watches, &listener{}, make(chan struct{})
	watch, send, end := kv.NewWatch(c, func() {
		<-added
		ws.remove(cmd.Key, me)
	})
	me.send, me.end = send, func(err error) { end(k.fail(err)) }
	w, err := ws.subscribe(cmd.Key, me)
	close(added)
	if err == nil {
		t := time.NewTimer(time.Until(k.deadline))
		defer t.Stop()
		select {
		case <-w.ready:
			err = w.err
		case <-k.c.Done():
			err = ws.late(k)
		case <-t.C:
			err = ws.late(k)
		case <-cl.life.Done():
			err = kv.ErrClosed
		}
	}
	if err != nil {
		watch.Stop()
		return nil, k.fail(err)
	}
	return watch, nil
}

func (ws *watches) late(k *call) error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.last != nil {
		return fmt.Errorf("%w (%w)", k.over(), unreachable(ws.last))
	}
	return k.over()
}

func (ws *watches) subscribe(key string, l *listener) (*watched, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.cl.life.Err() != nil {
		return nil, kv.ErrClosed
	}
	w := ws.keys[key]
	if w == nil {
		w = newWatched(key[1:])
		ws.keys[key] = w
		ws.questionsLocked(key, w)
	}
	w.listeners[l] = struct{}{}
	ws.many++
	if !ws.running {
		ws.running = true
		ws.cl.wg.Go(ws.keepOpen)
	}
	ws.askLocked()
	ws.nudge()
	return w, nil
}

func (ws *watches) remove(key string, l *listener) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.keys[key]
	if w == nil {
		return
	}
	if _, there := w.listeners[l]; !there {
		return
	}
	delete(w.listeners, l)
	switch ws.many--; {
	case ws.many == 0: // who comes next begins anew
		if ws.link != nil {
			_ = ws.link.nc.Close()
		}
		ws.link, ws.keys = nil, map[string]*watched{}
	case len(w.listeners) == 0:
		delete(ws.keys, key)
		if ws.link != nil {
			ws.unasked = append(ws.unasked, watchQuestion{state.Command{Op: state.OpUnwatch, Key: key}, w})
			ws.askLocked()
		}
	}
	ws.nudge()
}

func (ws *watches) nudge() {
	select {
	case ws.wake <- struct{}{}:
	default:
	}
}

// shutDown ends all watches, as the client is closed.
func (ws *watches) shutDown(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.endLocked(err)
}

func (ws *watches) endLocked(err error) {
	for key, w := range ws.keys {
		ws.failLocked(key, w, err)
	}
}

// failLocked ends the watches of one key.
func (ws *watches) failLocked(key string, w *watched, err error) {
	w.markReady(err)
	for l := range w.listeners {
		l.end(err)
	}
	ws.many -= len(w.listeners)
	delete(ws.keys, key)
}

// keepOpen keeps the connection until nothing is watched.
func (ws *watches) keepOpen() {
	for fails := 0; ; fails++ {
		began := time.Now()
		err := ws.session()
		if time.Since(began) > time.Second {
			fails = 0
		}
		ws.mu.Lock()
		ws.link, ws.last = nil, err
		if hopeless(err) || errors.Is(err, kv.ErrTooLarge) {
			ws.endLocked(err)
		}
		if ws.cl.life.Err() != nil {
			ws.endLocked(kv.ErrClosed)
		}
		if ws.many == 0 {
			ws.running = false
			ws.mu.Unlock()
			return
		}
		ws.mu.Unlock()
		wait := min(retryFirst<<min(fails, 10), retryMost)
		ws.rest(wait/2 + rand.N(wait))
	}
}

// rest waits, or less if something happens.
func (ws *watches) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ws.wake:
	case <-ws.cl.life.Done():
	}
}

// session is one connection, from its beginning to its end.
func (ws *watches) session() error {
	k, err := ws.cl.begin(ws.cl.life, "watch")
	if err != nil {
		return err
	}
	l, err := ws.cl.connect(k)
	if err != nil {
		return err
	}
	defer ws.cl.drop(l)
	l.until(time.Time{})
	ws.mu.Lock()
	for _, w := range ws.keys {
		w.stale = true
	}
	if !l.in.Own {
		ws.mu.Unlock()
		return ws.look(l)
	}
	ws.link, ws.unasked, ws.due, ws.owing = l, nil, nil, 0
	for key, w := range ws.keys {
		ws.questionsLocked(key, w)
	}
	ws.askLocked()
	ws.mu.Unlock()
	return ws.listen(l)
}

// questionsLocked plans to ask for news of a key, and for its value: what is told after that is
// news.
func (ws *watches) questionsLocked(key string, w *watched) {
	if ws.link == nil {
		return
	}
	ws.unasked = append(ws.unasked, watchQuestion{state.Command{Op: state.OpWatch, Key: key}, w}, watchQuestion{state.Command{Op: state.OpGet, Key: key}, w})
}

// askLocked sends what is to be asked, as long as little is due. A failure ends the connection,
// which its reader sees.
func (ws *watches) askLocked() {
	if ws.link == nil {
		return
	}
	var out []byte
	for len(ws.unasked) > 0 && ws.owing < watchOwing {
		q := ws.unasked[0]
		ws.unasked = ws.unasked[1:]
		out, _ = ws.link.in.AppendCommand(out, q.Command)
		ws.due = append(ws.due, q)
		ws.owing += q.size()
	}
	if len(out) == 0 {
		return
	}
	_ = ws.link.nc.SetWriteDeadline(time.Now().Add(watchWrite))
	if _, err := ws.link.nc.Write(out); err != nil {
		_ = ws.link.nc.Close()
	}
}

// listen takes in what the server says.
func (ws *watches) listen(l *link) error {
	for {
		if _, err := l.in.Reader.Peek(1); err != nil { // before looking at what is due: it may be asked only now
			return err
		}
		ws.mu.Lock()
		next := watchQuestion{Command: state.Command{Op: state.OpNews}}
		if len(ws.due) > 0 {
			next = ws.due[0]
		}
		ws.mu.Unlock()
		r, err := l.in.Reply(next.Command)
		if err != nil {
			return err
		}
		ws.dispatch(next, r)
	}
}

func (ws *watches) dispatch(asked watchQuestion, r state.Reply) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if r.Op == state.OpNews {
		if w := ws.keys[r.Key]; w != nil {
			w.heard(r)
		}
		return
	}
	ws.due = ws.due[1:]
	ws.owing -= asked.size()
	switch {
	case asked.Op == state.OpUnwatch:
	case r.Err != nil && !errors.Is(r.Err, kv.ErrNoKey):
		if ws.keys[asked.Key] == asked.w {
			ws.failLocked(asked.Key, asked.w, r.Err)
		}
	case asked.Op == state.OpGet:
		asked.w.found(r.Value)
	}
	ws.askLocked()
}

// look asks for the values again and again. PyTorch 1.13 and 2.0 would tell of changes, but their
// servers do not notice that who watches a key has gone: then they write its news to whoever has
// got its file descriptor since, and hang up on who changes the key.
func (ws *watches) look(l *link) error {
	for {
		ws.mu.Lock()
		keys := make(map[string]*watched, len(ws.keys))
		maps.Copy(keys, ws.keys)
		ws.mu.Unlock()
		if len(keys) == 0 {
			return nil
		}
		for key, w := range keys {
			l.until(time.Now().Add(watchWrite))
			value, err := l.look(key)
			if err != nil {
				return err
			}
			ws.mu.Lock()
			w.found(value)
			ws.mu.Unlock()
		}
		ws.rest(watchLook)
		if ws.cl.life.Err() != nil {
			return kv.ErrClosed
		}
	}
}
