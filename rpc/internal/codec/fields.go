package codec

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
)

// What becomes of the fields of a struct. Nothing that a caller filled in may be lost on the way
// without a word: a field travels, says by the tag `cbor:"-"`, or `json:"-"` where it has no other,
// that it stays, or its declaration is an error.

// fields makes the codecs of a struct's fields. index and prefix are those of the embedded struct
// whose fields they are.
func (m *maker) fields(c *Codec, t reflect.Type, path string, index []int, prefix string) error {
	if m.lenient && t.NumField() > 0 && !slices.ContainsFunc(reflect.VisibleFields(t), reflect.StructField.IsExported) {
		return fmt.Errorf("%w: %s: a %v has no exported field", ErrArguments, path, t)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		at := append(slices.Clone(index), i)
		switch where := path + "." + f.Name; {
		case stays(f):
		case f.IsExported():
			fc, err := m.make(f.Type, where)
			if err != nil {
				return err
			}
			c.fields = append(c.fields, field{prefix + f.Name, at, fc})
		case f.Anonymous && f.Type.Kind() == reflect.Struct && !marshals(f.Type): // its exported fields are the outer one's
			if err := m.fields(c, f.Type, where, at, prefix+f.Name+"."); err != nil {
				return err
			}
		case m.lenient:
		case m.holdsTensor(f.Type, map[reflect.Type]bool{}):
			return fmt.Errorf("%w: %s: a field that holds tensors must be exported", ErrArguments, where)
		default:
			return fmt.Errorf("%w: %s: it would be lost, for it is not exported; export it, or tag it `cbor:\"-\"` where it is to stay", ErrArguments, where)
		}
	}
	return nil
}

// stays says that a field is not to travel: its declaration says so, or there is nothing in it.
func stays(f reflect.StructField) bool {
	return wireTag(f) == "-" || f.Name == "_" || !f.IsExported() && f.Type.Size() == 0
}

// wireTag is the tag that the CBOR library goes by.
func wireTag(f reflect.StructField) string { return cmp.Or(f.Tag.Get("cbor"), f.Tag.Get("json")) }

// wireName is what a field that travels is called in CBOR.
func wireName(f reflect.StructField) string {
	name, _, _ := strings.Cut(wireTag(f), ",")
	return cmp.Or(name, f.Name)
}

// checkNames says which fields of a struct that goes to the CBOR library whole the library would
// leave out: of two with one name it takes one, or none.
func checkNames(t reflect.Type) error {
	seen := map[string]string{}
	return eachName(t, t.String(), map[reflect.Type]bool{}, func(name, path string) error {
		if other := seen[name]; other != "" {
			return fmt.Errorf("%w: %s and %s are both called %q on the wire, and one would be lost; name one by a tag such as `cbor:\"b\"`", ErrArguments, other, path, name)
		}
		seen[name] = path
		return nil
	})
}

// eachName visits the fields of a struct and of those embedded in it. within are the structs that t
// lies in: a struct may embed a pointer to one of these, and has its fields from there.
func eachName(t reflect.Type, path string, within map[reflect.Type]bool, visit func(name, path string) error) error {
	within[t] = true
	defer delete(within, t)
	for i := range t.NumField() {
		f := t.Field(i)
		name := wireName(f)
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		var err error
		switch where := path + "." + f.Name; {
		case stays(f):
		case !f.Anonymous || inner.Kind() != reflect.Struct || name != f.Name:
			if f.IsExported() {
				err = visit(name, where)
			}
		case marshals(inner):
			err = fmt.Errorf("%w: %s: a %v would be lost, for it is embedded and has a form of its own; give the field a name", ErrArguments, where, f.Type)
		case !within[inner]:
			err = eachName(inner, where, within, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var selfMade = []reflect.Type{
	reflect.TypeFor[cbor.Marshaler](), reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.BinaryMarshaler](),
}

// hasOwnForm says that values of t go to the CBOR library whole, whatever is in them: their type
// knows its own form on the wire.
func (m *maker) hasOwnForm(t reflect.Type, path string) (bool, error) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return false, nil
	}
	if !marshals(t) || m.holdsTensor(t, map[reflect.Type]bool{}) {
		return false, nil
	}
	if t.Kind() == reflect.Struct && t.NumField() > 1 {
		if by := formOf(t); by != "" {
			return false, fmt.Errorf("%w: %s: it has the form on the wire of the embedded %s, and all other fields would be lost; give that field a name", ErrArguments, path, by)
		}
	}
	return true, nil
}

// formOf is the embedded field whose methods give a struct its form on the wire; empty where it has
// methods of its own.
func formOf(t reflect.Type) string {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && marshals(f.Type) && promoted(t) {
			return f.Name
		}
	}
	return ""
}

// promoted says that the compiler wrote the method by which t marshals itself: it is that of an
// embedded field.
func promoted(t reflect.Type) bool {
	for _, t := range []reflect.Type{t, reflect.PointerTo(t)} {
		m, ok := t.MethodByName("MarshalCBOR") // in the order in which the CBOR library looks; constants, so that the linker need not keep all methods
		if !ok {
			m, ok = t.MethodByName("MarshalBinary")
		}
		if !ok {
			m, ok = t.MethodByName("MarshalText")
		}
		if ok {
			at := m.Func.Pointer()
			file, _ := runtime.FuncForPC(at).FileLine(at)
			return file == "<autogenerated>"
		}
	}
	return false
}

func (m *maker) holdsTensor(t reflect.Type, seen map[reflect.Type]bool) bool {
	if seen[t] {
		return false
	}
	seen[t] = true
	if t == tensorType || t == tensorType.Elem() || m.types.IsRef(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map, reflect.Pointer:
		return m.holdsTensor(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if m.holdsTensor(t.Field(i).Type, seen) {
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
