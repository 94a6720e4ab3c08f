package autodiff

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/weft-project/weft/internal/site"
)

// Owner says who frees a tensor. The zero Owner is nobody.
type Owner struct {
	Pass  string // the id of a pass, "0.17"
	Arena string // the label of an arena that is no pass's
	Scope string // "a checkpoint of f" or "a hook", of a tensor that was made inside; of which pass or arena may not be known
	At    string // file:line where the arena was made
	Over  bool   // the pass was left, or the arena freed
}

func (o Owner) String() string {
	var s string
	switch {
	case o.Pass != "":
		s = "pass " + o.Pass
	case o.Arena != "":
		s = fmt.Sprintf("arena %q", o.Arena)
		if o.At != "" {
			s += " (made at " + o.At + ")"
		}
	case o.Scope == "":
		return "nobody"
	default:
		return o.Scope
	}
	if o.Scope != "" {
		return o.Scope + " in " + s
	}
	return s
}

// ending is how an owner's tensors were freed.
func (o Owner) ending() string {
	switch {
	case o.Scope != "":
		return "which has returned"
	case o.Pass != "":
		return "which was left"
	}
	return "which was freed"
}

// OwnerError says that a tensor was used where its owner does not allow it. It matches [ErrFreed]
// where the owner is over, [ErrMixedPasses] where two passes meet, or a pass and a call outside of
// it, and [ErrMixedArenas] where an arena meets a pass or another arena. Its text says what mends
// it.
type OwnerError struct {
	Tensor string // its type; empty for one that was about to be made
	At     string // file:line where it was computed, where that is known
	Owner  Owner
	Meets  Owner // the owner of what it met; where it was to leave the worker the pass of the call, nobody for none
	Sent   bool  // it was to leave the worker in a call
	Nested bool  // one of the two passes was opened inside the other
}

// Unwrap gives the sentinel.
func (e *OwnerError) Unwrap() error {
	switch {
	case e.Owner.Over || e.Meets.Over:
		return ErrFreed
	case e.Owner.Arena != "" || e.Meets.Arena != "":
		return ErrMixedArenas
	}
	return ErrMixedPasses
}

func (e *OwnerError) Error() string {
	what := e.Tensor
	if e.At != "" {
		what += " (computed at " + e.At + ")"
	}
	switch {
	case e.Owner.Over:
		return e.freed(what)
	case e.Meets.Over:
		return fmt.Sprintf("%v: %s of %v meets one of %v, %s; %s", ErrFreed, what, e.Owner, e.Meets, e.Meets.ending(), copyFirst)
	case e.Sent:
		return e.sent(what)
	}
	return fmt.Sprintf("%v: %s of %v meets one of %v; %s", e.Unwrap(), what, e.Owner, e.Meets, e.remedy())
}

const (
	copyFirst = "copy what is to outlive it before, with Tensor.Copy"
	copyOne   = "use a copy of one, which belongs to nobody and has no history: Tensor.Copy"
)

func (e *OwnerError) freed(what string) string {
	if e.Tensor == "" {
		return fmt.Sprintf("%v: a new one was to belong to %v, %s; give it to one that is not over", ErrFreed, e.Owner, e.Owner.ending())
	}
	if e.Owner == (Owner{Over: true}) {
		return fmt.Sprintf("%v: %s was lent for as long as a hook or a backward ran; copy it there, with Tensor.Copy", ErrFreed, what)
	}
	meets := ""
	if e.Meets != (Owner{}) {
		meets = fmt.Sprintf(", and meets one of %v", e.Meets)
	}
	return fmt.Sprintf("%v: %s belonged to %v, %s%s; %s", ErrFreed, what, e.Owner, e.Owner.ending(), meets, copyFirst)
}

func (e *OwnerError) sent(what string) string {
	carries := "no pass"
	if e.Meets != (Owner{}) {
		carries = e.Meets.String()
	}
	if e.Owner.Arena != "" {
		return fmt.Sprintf("%v: %s belongs to %v, and an arena's tensors do not leave their worker; compute it in a pass, from inputs given with ctx.Own, or send a copy: Tensor.Copy",
			ErrMixedArenas, what, e.Owner)
	}
	text := fmt.Sprintf("%v: %s belongs to %v, and the call's context carries %s; ", ErrMixedPasses, what, e.Owner, carries)
	if e.Nested {
		return text + "one pass was opened inside the other: open one, and " + sendCopy
	}
	return text + sendCopy
}

const sendCopy = "use the context that Worker.Pass gives to its function, or, where no gradient is to come back through it, send a copy: Tensor.Copy"

// remedy is what mends an operation on tensors of two owners.
func (e *OwnerError) remedy() string {
	switch {
	case e.Owner.Scope != "" && e.Meets.Scope != "":
		return "a checkpoint inside another is told so by its inputs: give it what it reads"
	case e.Owner.Arena != "" && e.Meets.Arena != "":
		return "use one arena for both, or " + copyOne
	case e.Owner.Arena != "" || e.Meets.Arena != "":
		return "compute both in the pass, from inputs given to it with ctx.Own, or " + copyOne
	case e.Nested:
		return "one was opened inside the other: call with the context of the outer one and open no second, or " + copyOne
	}
	return "compute both in one pass, or " + copyOne
}

// identity describes an arena for errors.
func (a *Arena) identity() Owner {
	if a == nil {
		return Owner{}
	}
	o := a.named()
	o.Over = a.isFreed()
	return o
}

// named is identity without a lock.
func (a *Arena) named() (o Owner) {
	if a.scope != nil {
		if r := a.root(); r != nil {
			o = r.named()
		}
		o.Scope = a.label
		return o
	}
	if a.pass {
		return Owner{Pass: strings.TrimPrefix(a.label, passLabel)}
	}
	o.Arena = a.label
	if file, line := site.Outside(a.made[:a.frames]); file != "" {
		o.At = Site{File: file, Line: line}.String()
	}
	return o
}

// inside says that a pass was opened inside the function of another, o.
func (a *Arena) inside(o *Arena) bool {
	for a = a.outer; a != nil; a = a.outer {
		if a == o {
			return true
		}
	}
	return false
}

// mixed is the error for a tensor that meets what belongs to o.
func (t *Tensor) mixed(o *Arena, sent bool) error {
	e := &OwnerError{Tensor: t.typ.String(), At: t.computedAt(), Owner: t.owner.identity(), Meets: o.identity(), Sent: sent}
	if e.Owner.Over && sent {
		e.Meets, e.Sent = Owner{}, false
	}
	if t.owner.pass && o != nil {
		e.Nested = o.inside(t.owner) || t.owner.inside(o)
	}
	return e
}

// computedAt is where the user called the function that made t.
func (t *Tensor) computedAt() string {
	if n := t.edge.Node; n != nil && n.Leaf() == nil {
		return n.Site().String()
	}
	return ""
}

// freedError is the error for what an arena that is over was to own, or owned.
func (a *Arena) freedError(of, at string) error {
	e := &OwnerError{Tensor: of, At: at}
	if a != nil {
		e.Owner = a.named()
	}
	e.Owner.Over = true
	return e
}

// Accepts says why tensors may not be used where only a's and nobody's may.
func (a *Arena) Accepts(op string, ts ...*Tensor) error { return a.accepts(op, false, ts) }

// Sends says why tensors must not leave in a call whose context carries the pass of a; nil is for a
// call without one. Their gradients would be lost.
func (a *Arena) Sends(ts ...*Tensor) error { return a.accepts("send", true, ts) }

func (a *Arena) accepts(op string, sent bool, ts []*Tensor) error {
	for i, t := range ts {
		if owner := t.Owner(); owner != nil && owner != a {
			err := t.mixed(a, sent)
			if len(ts) > 1 {
				err = fmt.Errorf("tensor %d: %w", i, err)
			}
			return opError(op, err)
		}
	}
	return nil
}

// ownerOf is the one arena among the owners of tensors; nil entries are skipped.
func ownerOf(ts []*Tensor) (owner *Arena, err error) {
	for i, t := range ts {
		o := t.Owner()
		if o == owner || o == nil {
			continue
		}
		both, ok := mix(owner, o)
		if !ok {
			return nil, meeting(ts[:i], t)
		}
		owner = both
	}
	return owner, nil
}

// meeting is the error for a tensor that cannot be mixed with those before it. What is freed is
// told first.
func meeting(before []*Tensor, t *Tensor) error {
	for _, other := range before {
		if o := other.Owner(); o != nil {
			if _, ok := mix(o, t.owner); !ok {
				var e *OwnerError
				if err := other.mixed(t.owner, false); !errors.As(err, &e) || !e.Meets.Over {
					return err
				}
				return t.mixed(o, false)
			}
		}
	}
	return t.mixed(before[0].Owner(), false)
}

// capture notes where an arena is made.
func (a *Arena) capture() { a.frames = runtime.Callers(3, a.made[:]) }
