package codec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-project/weft/autodiff"
)

// Codec turns values of one type into CBOR and a list of tensors, and back. Types without
// tensors and references go to the CBOR library whole; around the others it walks structs,
// pointers, slices, arrays and maps.
type Codec struct {
	typ    reflect.Type
	kind   kind
	types  Types   // which types are references
	elem   *Codec  // of pointers, slices, arrays and maps
	fields []field // of structs
	refers bool    // a reference can be reached; set on the codec of a whole value
	empty  bool    // a struct{}: nothing travels
	why    error   // of what stays: what in it cannot travel
}

type field struct {
	name  string // on the wire, where the struct holds tensors or references
	index []int  // as of reflect.Value.FieldByIndex
	codec *Codec
}

type kind uint8

const (
	plain kind = iota
	tensorValue
	refValue
	pointer
	list
	table
	record
	remains // cannot travel; a result that only Remote can use
)

var (
	tensorType = reflect.TypeFor[*autodiff.Tensor]()
)

// ErrArguments is what is wrong with values and types that cannot travel.
var ErrArguments = errors.New("bad arguments")

// Ref is a reference while a value holds it.
type Ref interface {
	Pin() error // keeps it while the value travels
	Unpin()
	Release() // of one that arrived, and was not used
}

// Types says which Go types are references and futures.
type Types struct {
	IsRef    func(t reflect.Type) bool
	RefOf    func(v reflect.Value) Ref // nil where it refers to nothing
	SetRef   func(v reflect.Value, r Ref)
	IsFuture func(t reflect.Type) bool
}

// For makes the codec of a type, or says what in it cannot travel, or would be lost on the way.
func (t Types) For(of reflect.Type) (*Codec, error) {
	return (&maker{types: t, made: map[reflect.Type]*Codec{}}).whole(of)
}

// Exported is For, but fields that are not exported are left out.
func (t Types) Exported(of reflect.Type) (*Codec, error) {
	return (&maker{types: t, made: map[reflect.Type]*Codec{}, lenient: true}).whole(of)
}

// Result is For, but a type that cannot travel is allowed: its values stay where they are made, and
// Travels says why.
func (t Types) Result(of reflect.Type) (*Codec, error) {
	c, err := t.For(of)
	if err != nil && t.IsFuture(of) {
		return nil, err
	}
	if err != nil {
		return &Codec{typ: of, kind: remains, why: err}, nil //nolint:nilerr // the error is for who asks for the value
	}
	return c, nil
}

// Type is the Go type.
func (c *Codec) Type() reflect.Type { return c.typ }

// Plain says that values hold neither tensors nor references.
func (c *Codec) Plain() bool { return c.kind == plain }

// Refers says that values may hold references.
func (c *Codec) Refers() bool { return c.refers }

// Travels says why no value can travel, nil where they can.
func (c *Codec) Travels() error {
	if c.kind == remains {
		return c.cannotTravel()
	}
	return nil
}

// whole makes the codec of a whole value.
func (m *maker) whole(t reflect.Type) (*Codec, error) {
	c, err := m.make(t, t.String())
	if err != nil {
		return nil, err
	}
	for _, part := range m.made { // only now, when recursive types are whole
		if !part.carries(map[*Codec]bool{}, tensorValue, refValue) && !part.reaches(part, map[*Codec]bool{}) {
			if part.kind == record {
				err = errors.Join(err, checkNames(part.typ))
			}
			part.kind = plain
		}
	}
	if err != nil {
		return nil, err
	}
	c.refers = c.carries(map[*Codec]bool{}, refValue)
	c.empty = t.Kind() == reflect.Struct && t.NumField() == 0 && !marshals(t)
	return c, nil
}

type maker struct {
	types   Types
	made    map[reflect.Type]*Codec
	lenient bool // fields that are not exported are left out
}

// make builds the codec of t; path says where t stands, for errors. Recursive types find themselves
// in m.made.
func (m *maker) make(t reflect.Type, path string) (*Codec, error) {
	if c := m.made[t]; c != nil {
		return c, nil
	}
	c := &Codec{typ: t, types: m.types}
	m.made[t] = c
	if t == tensorType {
		c.kind = tensorValue
		return c, nil
	}
	if m.types.IsRef(t) {
		c.kind = refValue
		return c, nil
	}
	if m.types.IsFuture(t) {
		return nil, fmt.Errorf("%w: %s: a %v cannot travel; declare the function with DefineAsync", ErrArguments, path, t)
	}
	if t == tensorType.Elem() {
		return nil, fmt.Errorf("%w: %s: tensors travel as %v", ErrArguments, path, tensorType)
	}
	if own, err := m.hasOwnForm(t, path); own || err != nil {
		return c, err // plain
	}
	var err error
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr, reflect.Interface, reflect.Complex64, reflect.Complex128:
		return nil, fmt.Errorf("%w: %s: %v cannot travel; use concrete types", ErrArguments, path, t)
	case reflect.Pointer:
		c.kind = pointer
		c.elem, err = m.make(t.Elem(), path)
	case reflect.Slice, reflect.Array:
		c.kind = list
		c.elem, err = m.make(t.Elem(), path+"[]")
	case reflect.Map:
		c.kind = table
		if k := t.Key().Kind(); k != reflect.String && (k < reflect.Int || k > reflect.Uint64) {
			return nil, fmt.Errorf("%w: %s: map keys must be strings or integers, not %v", ErrArguments, path, t.Key())
		}
		c.elem, err = m.make(t.Elem(), path+"[]")
	case reflect.Struct:
		c.kind = record
		err = m.fields(c, t, path, nil, "")
	}
	return c, err
}

// reaches says whether a type holds itself: only such values can be cyclic, and the CBOR library
// would not notice.
func (c *Codec) reaches(goal *Codec, seen map[*Codec]bool) bool {
	next := []*Codec{}
	if c.elem != nil {
		next = append(next, c.elem)
	}
	for _, f := range c.fields {
		next = append(next, f.codec)
	}
	for _, n := range next {
		if n == goal {
			return true
		}
		if !seen[n] {
			seen[n] = true
			if n.reaches(goal, seen) {
				return true
			}
		}
	}
	return false
}

// carries says whether a value of one of some kinds can be reached.
func (c *Codec) carries(seen map[*Codec]bool, kinds ...kind) bool {
	if seen[c] {
		return false
	}
	seen[c] = true
	if slices.Contains(kinds, c.kind) || (c.elem != nil && c.elem.carries(seen, kinds...)) {
		return true
	}
	for _, f := range c.fields {
		if f.codec.carries(seen, kinds...) {
			return true
		}
	}
	return false
}

func (c *Codec) cannotTravel() error {
	return fmt.Errorf("%w: a %v cannot travel; use Remote and keep it where it is (%w)", ErrArguments, c.typ, c.why)
}
