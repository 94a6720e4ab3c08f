package rpc

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weft-project/weft/autodiff"
)

// codec turns Go values of one type into CBOR and a list of tensors, and back. Types without
// tensors and references go to the CBOR library whole; around the others it walks structs,
// pointers, slices, arrays and maps.
type codec struct {
	typ    reflect.Type
	kind   codecKind
	elem   *codec  // of pointers, slices, arrays and maps
	fields []field // of structs
	refers bool    // a reference can be reached; set on the codec of a whole value
	empty  bool    // a struct{}: nothing travels
	why    error   // of what stays: what in it cannot travel
}

type field struct {
	name  string // on the wire, where the struct holds tensors or references
	index []int  // as of reflect.Value.FieldByIndex
	codec *codec
}

type codecKind uint8

const (
	plain codecKind = iota
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
	refType    = reflect.TypeFor[anyRef]()
	futureType = reflect.TypeFor[pending]()
)

// codecFor makes the codec of a type, or says what in it cannot travel, or would be lost on the
// way.
func codecFor(t reflect.Type) (*codec, error) {
	return (&codecMaker{made: map[reflect.Type]*codec{}}).whole(t)
}

// whole makes the codec of a whole value.
func (m *codecMaker) whole(t reflect.Type) (*codec, error) {
	c, err := m.make(t, t.String())
	if err != nil {
		return nil, err
	}
	for _, part := range m.made { // only now, when recursive types are whole
		if !part.carries(map[*codec]bool{}, tensorValue, refValue) && !part.reaches(part, map[*codec]bool{}) {
			if part.kind == record {
				err = errors.Join(err, checkNames(part.typ))
			}
			part.kind = plain
		}
	}
	if err != nil {
		return nil, err
	}
	c.refers = c.carries(map[*codec]bool{}, refValue)
	c.empty = t.Kind() == reflect.Struct && t.NumField() == 0 && !marshals(t)
	return c, nil
}

type codecMaker struct {
	made    map[reflect.Type]*codec
	lenient bool // fields that are not exported are left out
}

// make builds the codec of t; path says where t stands, for errors. Recursive types find themselves
// in m.made.
func (m *codecMaker) make(t reflect.Type, path string) (*codec, error) {
	if c := m.made[t]; c != nil {
		return c, nil
	}
	c := &codec{typ: t}
	m.made[t] = c
	if t == tensorType {
		c.kind = tensorValue
		return c, nil
	}
	if isRef(t) {
		c.kind = refValue
		return c, nil
	}
	if t.Implements(futureType) {
		return nil, fmt.Errorf("%w: %s: a %v cannot travel; declare the function with DefineAsync", ErrArguments, path, t)
	}
	if t == tensorType.Elem() {
		return nil, fmt.Errorf("%w: %s: tensors travel as %v", ErrArguments, path, tensorType)
	}
	if own, err := hasOwnForm(t, path); own || err != nil {
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

// isRef says whether t is an RRef itself, and not a struct that embeds one.
func isRef(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Implements(refType) && reflect.Zero(t).Interface().(anyRef).self() == t
}

// reaches says whether a type holds itself: only such values can be cyclic, and the CBOR library
// would not notice.
func (c *codec) reaches(goal *codec, seen map[*codec]bool) bool {
	next := []*codec{}
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
func (c *codec) carries(seen map[*codec]bool, kinds ...codecKind) bool {
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

func (c *codec) cannotTravel() error {
	return fmt.Errorf("%w: a %v cannot travel; use Remote and keep it where it is (%w)", ErrArguments, c.typ, c.why)
}
