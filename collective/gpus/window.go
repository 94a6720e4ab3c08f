package gpus

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// window is how members on one host see one another's numbers: each has set memory of its GPU
// aside, which all others have open. It has two halves, which are used in turn, and before them a
// nonce, by which those who open it see that it is what it is said to be.
//
// Memory is given back when the others have closed it, or are gone. They close it, and say so, when
// the window or the group has ended and their own GPU is not at it any more.
type window struct {
	g       *collective.Group
	d       *Device
	mem     device.Folder
	half    int
	oneShot int
	own     device.Scratch
	size    int       // bytes of own; 0: none
	at      []uintptr // by rank: where a member's window lies here; 0: it is not open
	lacks   error     // why nobody has a window, as some member has none
	service string
	queue   *Device // what is reduced, one after another, in the same order on all members
	used    uint64  // halves; of who is served by the queue
	stop    func()
	done    chan struct{} // closed when all is given back

	mu     sync.Mutex
	ended  error
	ending chan struct{} // closed with ended
	busy   sync.WaitGroup
	away   map[string]bool // members that have closed this one's memory
	heard  chan struct{}   // away has changed; of capacity 1
}

const (
	windowHead  = 256
	defaultHalf = 32 << 20
)

// view is what a member says of its window.
type view struct {
	Handle, Nonce []byte
	Half          int
	Problem       string
	Failed        string // why the whole is to fail
}

// openWindow opens the members' memory, or finds that some cannot, which is no error. Where one has
// failed before, it fails on all.
func openWindow(c context.Context, g *collective.Group, d *Device, cfg Config, failed error) (*window, error) {
	w := &window{
		g: g, d: d, half: cmp.Or(cfg.half, defaultHalf), oneShot: cmp.Or(cfg.oneShot, oneShot), at: make([]uintptr, g.Size()), queue: Use(nil),
		done: make(chan struct{}), ending: make(chan struct{}), away: map[string]bool{}, heard: make(chan struct{}, 1),
	}
	whose := []any{g.Name(), g.Generation(), g.Mark(c)}
	for _, m := range g.Members() {
		whose = append(whose, m.Worker, m.Incarnation)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", whose))
	w.service = fmt.Sprintf("window/%x", sum[:16])
	var err error
	if w.stop, err = rpc.OnPost(g.Worker(), w.service, w.hear); err != nil {
		w.stop, failed = func() {}, errors.Join(failed, err)
	}
	go w.tidy()
	if err = w.meet(c, failed); err != nil || w.lacks != nil {
		w.expire(cmp.Or(err, w.lacks))
		return w, err
	}
	return w, nil
}

// meet opens the windows of all members, and says what is in the way in lacks.
func (w *window) meet(c context.Context, failed error) error {
	var mine view
	var err error
	if failed != nil {
		mine.Failed = cut(failed.Error())
	} else if mine, err = w.setAside(); err != nil {
		mine.Problem = cut(err.Error())
	}
	all, err := collective.Agree(collective.Scope(c, scope), w.g, mine)
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	var problems []string
	for r, v := range all {
		if v.Failed != "" {
			return &FailedError{Rank: r, Worker: w.g.Members()[r].Worker, Cause: errors.New(v.Failed)}
		}
		problems = append(problems, v.Problem)
	}
	if w.lack(problems); w.lacks != nil { // all see that
		return nil
	}
	problem := ""
	if err = w.openAs(w.g.Rank(), all); err != nil {
		problem = cut(err.Error())
	}
	problems, err = collective.Agree(collective.Scope(c, scope), w.g, problem)
	w.lack(problems)
	return err
}

// lack keeps the first problem that there is.
func (w *window) lack(problems []string) {
	for r, p := range problems {
		if p != "" && w.lacks == nil {
			w.lacks = fmt.Errorf("%w: %s: %s", errNoWindow, w.g.Members()[r].Worker, p)
		}
	}
}

var (
	errNoWindow = errors.New("the members do not see one another's memory")
	errClosed   = errors.New("what was open of the members' memory is closed")
)

// setAside makes this member's window.
func (w *window) setAside() (view, error) {
	v := view{Nonce: []byte(rand.Text()), Half: w.half}
	var ok bool
	if w.mem, ok = w.d.mem.(device.Folder); !ok || w.mem.Identity() == "" {
		return v, errors.New("the GPU's memory cannot be shared")
	}
	if w.g.Size() > device.MostFolded {
		return v, fmt.Errorf("%d members; expected %d at most", w.g.Size(), device.MostFolded)
	}
	size := windowHead + 2*w.half
	var err error
	if w.own, err = w.d.acc.Borrow(size); err != nil {
		return v, err
	}
	w.size, w.at[w.g.Rank()] = size, w.own.Addr()
	if err := w.mem.Upload(w.own.Addr(), v.Nonce); err != nil {
		return v, err
	}
	if err := w.wait(w.own.Addr()); err != nil {
		return v, err
	}
	v.Handle, err = w.mem.Export(w.own.Addr())
	return v, err
}

// wait waits for the work of this GPU that uses memory at some addresses.
func (w *window) wait(at ...uintptr) error {
	wait, err := w.mem.Mark(at...)
	if err != nil {
		return err
	}
	return wait()
}

// openAs opens the others' windows for a rank. They may say anything of them.
func (w *window) openAs(rank int, all []view) error {
	for r, v := range all {
		if r == rank {
			continue
		}
		if v.Half != w.half {
			return fmt.Errorf("%w: rank %d has halves of %d bytes; expected %d", rpc.ErrProtocol, r, v.Half, w.half)
		}
		at, n, err := w.mem.Import(v.Handle)
		if err != nil {
			return err
		}
		w.at[r] = at
		if len(v.Nonce) > windowHead {
			return fmt.Errorf("%w: rank %d has a nonce of %d bytes", rpc.ErrProtocol, r, len(v.Nonce))
		}
		nonce := make([]byte, len(v.Nonce))
		if n < w.size {
			return fmt.Errorf("%w: rank %d has a window of %d bytes; expected %d", rpc.ErrProtocol, r, n, w.size)
		}
		if err := w.mem.Download(nonce, at); err != nil {
			return err
		}
		if !bytes.Equal(nonce, v.Nonce) {
			return fmt.Errorf("%w: the memory of rank %d is not what it says", rpc.ErrProtocol, r)
		}
	}
	return nil
}

// admit begins what busy waits for, unless the window has ended.
func (w *window) admit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.busy.Add(1)
	}
	return w.ended
}

// expire has nothing more begin.
func (w *window) expire(why error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended == nil {
		w.ended = why
		close(w.ending)
	}
}

// tidy gives all back when the window or the group has ended.
func (w *window) tidy() {
	select {
	case <-w.ending:
	case <-w.g.Done():
		w.expire(w.g.Err())
	}
	w.busy.Wait()
	for r, at := range w.at {
		if at != 0 && r != w.g.Rank() {
			_ = w.wait(at) // where the GPU is lost nothing reads any more
			_ = w.mem.Unimport(at)
		}
	}
	w.tellClosed()
	w.awaitOthers()
	if w.size > 0 {
		w.own.Return()
	}
	w.stop()
	close(w.done)
}

// tellClosed tells the others that nothing of theirs is open here. Who cannot be reached is gone.
func (w *window) tellClosed() {
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var all sync.WaitGroup
	for _, m := range w.g.Members() {
		if m.Rank != w.g.Rank() {
			all.Go(func() { _ = rpc.Post(c, w.g.Worker(), m.Worker, w.service, nil) })
		}
	}
	all.Wait()
}

// hear takes the word of a member.
func (w *window) hear(from rpc.WorkerInfo, _ []byte, tensors []transport.Tensor) {
	for _, t := range tensors {
		_ = t.Buf.Release() // nobody wants it
	}
	w.mu.Lock()
	w.away[from.Name] = true
	w.mu.Unlock()
	select {
	case w.heard <- struct{}{}:
	default:
	}
}

// awaitOthers waits until nobody has this member's window open.
func (w *window) awaitOthers() {
	c, cancel := context.WithCancel(context.Background())
	defer cancel()
	events := w.g.Worker().Peers(c)
	for slices.ContainsFunc(w.g.Members(), w.mayHave) {
		select {
		case <-w.heard:
		case _, ok := <-events:
			if !ok { // the worker is closed: nobody hears of the others any more
				return
			}
		}
	}
}

// mayHave says whether a member may have this one's window open.
func (w *window) mayHave(m collective.Member) bool {
	w.mu.Lock()
	away := w.away[m.Worker]
	w.mu.Unlock()
	if away || m.Rank == w.g.Rank() || w.size == 0 {
		return false
	}
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info, err := w.g.Worker().Find(c, m.Worker)
	return err == nil && info.Incarnation == m.Incarnation
}

// Close ends the window, and waits until all is given back, or c ends.
func (w *window) Close(c context.Context) error {
	w.expire(errClosed)
	select {
	case <-w.done:
		return nil
	case <-c.Done():
		return fmt.Errorf("gpus: members of group %q have memory of this one open: %w", w.g.Name(), ended(c))
	}
}
