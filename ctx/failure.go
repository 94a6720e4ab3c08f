package ctx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weft-project/weft/autodiff"
)

// Failure is why a backward ended without gradients. Every worker that took part gets the same one.
type Failure struct {
	Worker   string     `cbor:"1,keyasint"` // where it began: the lost worker, if one was lost, whoever noticed
	Pass     PassID     `cbor:"2,keyasint"`
	Backward BackwardID `cbor:"3,keyasint"`
	Op       string     `cbor:"4,keyasint,omitempty"` // the function, send or recv function that failed, where there is one
	At       string     `cbor:"6,keyasint,omitempty"` // file and line of its forward call, where they are known
	Cause    string     `cbor:"5,keyasint"`           // in words

	err error // the cause itself, or what came of it over the wire
}

func (f *Failure) Error() string {
	where := f.Worker
	if f.Op != "" {
		where += " in " + f.Op
	}
	if f.At != "" {
		where += " (" + f.At + ")"
	}
	return fmt.Sprintf("backward %v failed on %s: %s", f.Backward, where, f.Cause)
}

// Unwrap lets errors.Is find the cause.
func (f *Failure) Unwrap() error { return f.err }

// Because is the failure with its cause, for who rebuilds one that came over a wire.
func (f *Failure) Because(cause error) *Failure {
	g := *f
	g.err = cause
	return &g
}

// abort ends the backward from outside; the first cause counts.
func (b *backward) abort(cause error) {
	b.mu.Lock()
	b.eng.fail(cause)
	b.mu.Unlock()
	b.poke()
}

// failureLocked is why the backward fails, nil while it does not; heard says that it began
// elsewhere. The caller holds b.mu.
func (b *backward) failureLocked() *Failure {
	if b.failed != nil || b.eng.err == nil {
		return b.failed
	}
	if errors.As(b.eng.err, &b.failed) && b.failed.Backward == b.id {
		b.heard = true
		return b.failed
	}
	b.failed = b.failure(b.eng.err)
	return b.failed
}

// failure makes a failure of what went wrong on this worker.
func (b *backward) failure(err error) *Failure {
	f := &Failure{Worker: b.pass.ct.links.Name(b.pass.ct.me), Pass: b.pass.id, Backward: b.id, err: err}
	var node *autodiff.NodeError
	var odd *autodiff.AnomalyError
	var hook *autodiff.HookError
	var gone *EndError
	switch {
	case errors.As(err, &odd):
		f.Op, f.At = odd.Function, autodiff.Site{File: odd.File, Line: odd.Line}.String()
	case errors.As(err, &hook):
		f.Op, f.At = hook.Function, autodiff.Site{File: hook.File, Line: hook.Line}.String()
	case errors.As(err, &node):
		f.Op, f.At, err = node.Node.Name(), node.Node.Site().String(), node.Err
	}
	if errors.As(err, &gone) && errors.Is(gone, ErrPeerLost) {
		f.Worker = gone.By
	}
	if errors.Is(err, context.DeadlineExceeded) && b.eng != nil {
		f.err = withReason(f.err, b.eng.stalled(b.mode))
		err = f.err
	}
	f.Cause = err.Error()
	return f
}

// late is a failure to bring gradients to the root, which may come when the backward is over here.
func (b *backward) late(err error) {
	p := b.pass
	p.mu.Lock()
	b.mu.Lock()
	b.eng.fail(err)
	f, over := b.failureLocked(), b.over
	b.mu.Unlock()
	if e := p.endedAs(b.id); over && e != nil {
		p.takeBackLocked(e, f)
	}
	p.mu.Unlock()
	b.poke()
	if over { // nobody drives it any more
		b.announce(f)
	}
}

// refuse tells all of a backward that cannot begin here.
func (b *backward) refuse(err error) *Failure {
	f := b.failure(err)
	b.pass.forget(b, f)
	b.announce(f)
	return f
}

// announce tells all who take part of a failure that began here. The root tells them also of what
// it heard: who began may be gone.
func (b *backward) announce(f *Failure) {
	p := b.pass
	b.mu.Lock()
	heard := b.heard
	b.mu.Unlock()
	if heard && b.id.creator() != p.ct.me && b.mode != Fast {
		return
	}
	to := append(b.plan.workers(), b.id.creator())
	if b.mode == Fast {
		to = p.Known() // who takes part is not known: the news goes on from each that had not heard
	}
	p.mu.Lock()
	to = slices.DeleteFunc(to, func(w WorkerID) bool { return w == p.ct.me || p.lost[w] != nil })
	p.mu.Unlock()
	slices.Sort(to)
	p.ct.spread(p.id, "a backward failed", slices.Compact(to), func(c context.Context, w WorkerID) error { return p.ct.links.SendAbort(c, w, f) })
}

// HandleAbort ends a backward because of a failure elsewhere. What it added to the pass's gradients
// already is taken back. Where the backward has not begun it will not.
func (ct *Container) HandleAbort(_ context.Context, f *Failure) error {
	p, err := ct.find(f.Pass, "abort")
	if err != nil {
		return err
	}
	if b := p.revoke(f.Backward, f); b != nil {
		b.abort(f)
	}
	return nil
}
