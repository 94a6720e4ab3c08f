package rpc

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
)

// codec turns Go values of one type into CBOR and a list of tensors, and back. Types without tensors and references go
// to the CBOR library whole; around the others it walks structs, pointers, slices, arrays and maps.
type codec struct {
	typ    reflect.Type
	kind   codecKind
	elem   *codec  // of pointers, slices, arrays and maps
	fields []field // of structs
	refers bool    // a reference can be reached; set on the codec of a whole value
	empty  bool    // a struct{}: nothing travels
}

type field struct {
	name  string
	index int
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
	stays // cannot travel; a result that only Remote can use
)

var (
	tensorType = reflect.TypeFor[*autodiff.Tensor]()
	refType    = reflect.TypeFor[anyRef]()
	futureType = reflect.TypeFor[pending]()
	selfMade   = []reflect.Type{
		reflect.TypeFor[cbor.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.BinaryMarshaler](),
	}
)

// codecFor makes the codec of a type, or says what in it cannot travel.
func codecFor(t reflect.Type) (*codec, error) {
	m := &codecMaker{made: map[reflect.Type]*codec{}}
	c, err := m.make(t, t.String())
	if err != nil {
		return nil, err
	}
	for _, part := range m.made { // only now, when recursive types are whole
		if !part.carries(map[*codec]bool{}, tensorValue, refValue) && !part.reaches(part, map[*codec]bool{}) {
			part.kind = plain
		}
	}
	c.refers = c.carries(map[*codec]bool{}, refValue)
	c.empty = t.Kind() == reflect.Struct && t.NumField() == 0 && !marshals(t)
	return c, nil
}

type codecMaker struct {
	made map[reflect.Type]*codec
}

// make builds the codec of t; path says where t stands, for errors. Recursive types find themselves in m.made.
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
		err = m.fields(c, t, path)
	}
	return c, err
}

// isRef says whether t is an RRef itself, and not a struct that embeds one.
func isRef(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Implements(refType) && reflect.Zero(t).Interface().(anyRef).self() == t
}

func (m *codecMaker) fields(c *codec, t reflect.Type, path string) error {
	if t.NumField() > 0 && !marshals(t) && !slices.ContainsFunc(reflect.VisibleFields(t), reflect.StructField.IsExported) {
		return fmt.Errorf("%w: %s: a %v has no exported field", ErrArguments, path, t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() {
			if holdsTensor(f.Type, map[reflect.Type]bool{}) {
				return fmt.Errorf("%w: %s.%s: a field that holds tensors must be exported", ErrArguments, path, f.Name)
			}
			continue
		}
		fc, err := m.make(f.Type, path+"."+f.Name)
		if err != nil {
			return err
		}
		c.fields = append(c.fields, field{f.Name, i, fc})
	}
	return nil
}

func holdsTensor(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if t == tensorType || t == tensorType.Elem() || isRef(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer:
		return holdsTensor(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if holdsTensor(t.Field(i).Type, seen) {
				return true
			}
		}
	}
	return false
}

// marshals says whether t knows its own form on the wire.
func marshals(t reflect.Type) bool {
	return slices.ContainsFunc(selfMade, func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) })
}

// reaches says whether a type holds itself: only such values can be cyclic, and the CBOR library would not notice.
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
	return fmt.Errorf("%w: a %v cannot travel; use Remote and keep it where it is", ErrArguments, c.typ)
}
