package rpc

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/printable"
	"github.com/weft-project/weft/rpc/internal/wire"
)

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

// fromWire makes an error of what came over the wire. What cannot be rebuilt is left out: the text tells
// of it.
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
