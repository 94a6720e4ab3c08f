package rpc

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/rpc/internal/codec"
	"github.com/weft-project/weft/rpc/internal/counts"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/transport"
)

// What can go wrong with calls and with joining.
var (
	ErrConfig        = errors.New("invalid configuration")
	ErrNoWorker      = errors.New("no worker in this context; make it with Worker.Context or Worker.Pass")
	ErrUnknownWorker = membership.ErrUnknownWorker
	ErrNotServed     = errors.New("function is not served")
	ErrArguments     = codec.ErrArguments
	ErrTimeout       = ctx.ErrTimeout
	ErrPeerLost      = ctx.ErrPeerLost // one sentinel for calls and passes, as for timeouts
	ErrPeerLeft      = membership.ErrPeerLeft
	ErrPanic         = errors.New("function panicked")
	ErrLeft          = membership.ErrLeft
	ErrRankTaken     = membership.ErrRankTaken
	ErrNameTaken     = membership.ErrNameTaken
	ErrWorldSize     = membership.ErrWorldSize
	ErrRefused       = membership.ErrRefused
	ErrProtocol      = wire.ErrProtocol
	ErrReleased      = errors.New("reference was released")
	ErrBusy          = membership.ErrBusy
	ErrCheckpoint    = errors.New("a checkpointed function must not call: it is run again when gradients arrive")
	ErrNotOwner      = errors.New("not the owner; use ToHere")
)

// Error says which worker failed to do what with which peer.
type Error struct {
	Worker   string // this worker
	Peer     string // may be empty
	Function string // or what was attempted
	Err      error
}

func (e *Error) Error() string {
	if e.Worker == "" { // it has no name yet
		return fmt.Sprintf("%s: %v", e.Function, e.Err)
	}
	if e.Peer == "" {
		return fmt.Sprintf("%s: %s: %v", e.Worker, e.Function, e.Err)
	}
	return fmt.Sprintf("%s: %s on %s: %v", e.Worker, e.Function, e.Peer, e.Err)
}

// Unwrap lets errors.Is find the cause.
func (e *Error) Unwrap() error { return e.Err }

// RemoteError is an error that a peer answered with. It matches (errors.Is) the sentinels that the
// error matched there, and (errors.As) the errors in it whose types this worker has listed in
// Config.Errors.
type RemoteError struct {
	Worker string // where it happened
	Type   string // what it was there, as a Go type
	Text   string // without control characters but line breaks and tabs
	kinds  []error
	causes []wire.Cause // as they came: to be passed on by workers that do not know the types
}

func (e *RemoteError) Error() string { return fmt.Sprintf("error on %s: %s", e.Worker, e.Text) }

// Unwrap gives the sentinels, and the errors that could be rebuilt.
func (e *RemoteError) Unwrap() []error { return e.kinds }

// portable are the sentinels that survive the trip. The position is part of the wire format: append
// only.
var portable = []error{
	ErrNotServed, ErrArguments, ErrTimeout, ErrPeerLost, ErrPanic, ErrLeft, ErrUnknownWorker, ErrProtocol, ErrReleased, ErrNotOwner,
	context.Canceled, context.DeadlineExceeded,
	ctx.ErrUnknownPass, ctx.ErrUnknownMessage, ctx.ErrStalled, ctx.ErrLeft, ctx.ErrProtocol,
	autodiff.ErrFreed, autodiff.ErrMixedPasses, autodiff.ErrDevices, autodiff.ErrDtype, autodiff.ErrFunction,
	autodiff.ErrNoGrad, autodiff.ErrNotScalar, autodiff.ErrGradient, autodiff.ErrGraphFreed,
	kernels.ErrOperands, kernels.ErrIndex, device.ErrBadMap, device.ErrNoDevice, device.ErrMemory, device.ErrBadShape,
	ErrRankTaken, ErrNameTaken, ErrWorldSize, ErrRefused, ErrPeerLeft, ErrConfig, ErrBusy, ErrResolved,
	autodiff.ErrAnomaly, autodiff.ErrRecompute, ErrCheckpoint, ErrNoWorker, device.ErrLost, autodiff.ErrMixedArenas, autodiff.ErrNotLeaf,
}

// outcomeOf classifies the error of a call. That somebody else was lost on the way is an error of
// the function, not the loss of its peer.
func outcomeOf(err error) counts.Outcome {
	if err == nil {
		return counts.OutcomeOK
	}
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	var remote *RemoteError
	var gone *CancelError
	switch {
	case is(ErrBusy):
		return counts.OutcomeBusy
	case is(ErrTimeout, context.DeadlineExceeded):
		return counts.OutcomeTimeout
	case errors.As(err, &gone) && is(ErrPeerLost, ErrPeerLeft):
		return counts.OutcomeLost
	case is(context.Canceled):
		return counts.OutcomeCancelled
	case errors.As(err, &remote):
		return counts.OutcomeError
	case is(ErrPeerLost, ErrPeerLeft, transport.ErrPeerLost, transport.ErrPeerClosed):
		return counts.OutcomeLost
	case is(ErrLeft, transport.ErrReset, transport.ErrClosed):
		return counts.OutcomeCancelled
	}
	return counts.OutcomeError
}

// Bounds on what an error may carry over the wire.
const (
	maxErrorText   = 16 << 10 // bytes
	maxErrorType   = 256
	maxCauses      = 16
	maxCauseFields = 16 << 10
	maxErrorNodes  = 1000 // of the tree of an error that are looked at
)

// TypedError is a type of errors that travel whole: what ErrorType gives.
type TypedError struct {
	name string
	typ  reflect.Type
	err  error // what is wrong with the declaration
	make func(raw []byte) (error, error)
}

// ErrorType declares that errors of type E, a struct or a pointer to one, travel with their
// exported fields, wherever in the tree of a handler's error they are: where caller and callee list
// the type under the same name in Config.Errors, errors.As finds them at the caller, also over
// several hops. No code travels, and nothing is registered but in the two workers.
func ErrorType[E error](name string) TypedError {
	t := TypedError{name: name, typ: reflect.TypeFor[E]()}
	fields := t.typ
	if fields.Kind() == reflect.Pointer {
		fields = fields.Elem()
	}
	if name == "" || len(name) > wire.MaxName {
		t.err = fmt.Errorf("the name of the error type %v has 1 to %d bytes, not %d", t.typ, wire.MaxName, len(name))
		return t
	}
	if fields.Kind() != reflect.Struct {
		t.err = fmt.Errorf("error type %q: a %v is neither a struct nor a pointer to one", name, t.typ)
		return t
	}
	c, err := forms.Exported(fields)
	if err == nil && !c.Plain() {
		err = fmt.Errorf("%w: errors carry neither tensors nor references", ErrArguments)
	}
	if err != nil {
		t.err = fmt.Errorf("error type %q: %w", name, err)
	}
	t.make = func(raw []byte) (error, error) {
		v := reflect.New(fields)
		if err := wire.Decode(raw, v.Interface()); err != nil {
			return nil, err
		}
		if t.typ.Kind() != reflect.Pointer {
			v = v.Elem()
		}
		return v.Interface().(E), nil
	}
	return t
}

// errorTypes are those that a worker has listed.
type errorTypes struct {
	byName map[string]TypedError
	names  map[reflect.Type]string
}

// ownTypes are the types of errors that Weft's own messages carry.
func ownTypes() []TypedError {
	return []TypedError{
		ErrorType[*ctx.Failure]("weft.failure"), ErrorType[*autodiff.AnomalyError]("weft.anomaly"), ErrorType[*autodiff.HookError]("weft.hook"),
		ErrorType[*autodiff.OwnerError]("weft.owner"),
	}
}

// list takes declarations, and says what is wrong with them.
func (t *errorTypes) list(types []TypedError) (errs []error) {
	t.byName, t.names = map[string]TypedError{}, map[reflect.Type]string{}
	for _, e := range append(ownTypes(), types...) {
		_, named := t.byName[e.name]
		_, typed := t.names[e.typ]
		switch {
		case e.typ == nil:
			errs = append(errs, errors.New("an error type is empty; make it with ErrorType"))
		case e.err != nil:
			errs = append(errs, e.err)
		case named || typed:
			errs = append(errs, fmt.Errorf("error type %q (%v) is listed twice", e.name, e.typ))
		default:
			t.byName[e.name], t.names[e.typ] = e, e.name
		}
	}
	return errs
}

// toWire makes of an error what may travel.
func (t errorTypes) toWire(worker string, err error) *wire.Error {
	w := &wire.Error{Worker: worker, Text: bounded(err.Error(), maxErrorText), Type: bounded(typeName(err), maxErrorType)}
	var remote *RemoteError
	if errors.As(err, &remote) { // the origin is worth more than the last hop
		w.Worker, w.Type = remote.Worker, remote.Type
	}
	for i, s := range portable {
		if errors.Is(err, s) {
			w.Kinds = append(w.Kinds, i)
		}
	}
	nodes := 0
	t.causes(err, w, &nodes)
	return w
}

// bounded makes text that may travel.
func bounded(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + " …"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// typeName is the type of the innermost error, without what only adds words to it.
func typeName(err error) string {
	for range maxErrorNodes {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return fmt.Sprintf("%T", err)
}

// causes collects what in the tree of an error can travel whole.
func (t errorTypes) causes(err error, w *wire.Error, nodes *int) {
	if *nodes++; err == nil || *nodes > maxErrorNodes {
		return
	}
	if remote, ok := err.(*RemoteError); ok { //nolint:errorlint // this walks the tree itself
		w.Causes = append(w.Causes, remote.causes[:min(len(remote.causes), maxCauses-len(w.Causes))]...)
		return
	}
	if name, ok := t.names[reflect.TypeOf(err)]; ok && len(w.Causes) < maxCauses && !isNil(err) {
		if raw, eerr := wire.Encode(err); eerr == nil && len(raw) <= maxCauseFields {
			w.Causes = append(w.Causes, wire.Cause{Name: name, Fields: raw})
		}
	}
	switch e := err.(type) { //nolint:errorlint // likewise
	case interface{ Unwrap() error }:
		if !isNil(err) {
			t.causes(e.Unwrap(), w, nodes)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			t.causes(inner, w, nodes)
		}
	}
}

func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// fromWire makes an error of what came over the wire. What cannot be rebuilt is left out: the text
// tells of it.
func (t errorTypes) fromWire(w *wire.Error) error {
	e := &RemoteError{Worker: printable.Text(w.Worker, wire.MaxName), Type: printable.Text(w.Type, maxErrorType), Text: printable.Lines(w.Text, maxErrorText), causes: w.Causes[:min(len(w.Causes), maxCauses)]}
	for _, k := range w.Kinds {
		if k >= 0 && k < len(portable) {
			e.kinds = append(e.kinds, portable[k])
		}
	}
	for _, c := range e.causes {
		if typ, known := t.byName[c.Name]; known {
			if cause, err := typ.make(c.Fields); err == nil {
				e.kinds = append(e.kinds, cause)
			}
		}
	}
	return e
}
