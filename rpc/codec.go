package rpc

import (
	"context"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

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
		if !part.carries(map[*codec]bool{}) && !part.reaches(part, map[*codec]bool{}) {
			part.kind = plain
		}
	}
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
	if t == tensorType.Elem() {
		return nil, fmt.Errorf("%w: %s: tensors travel as %v", ErrArguments, path, tensorType)
	}
	var err error
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Uintptr, reflect.Interface, reflect.Complex64, reflect.Complex128:
		return nil, fmt.Errorf("%w: %s: a %v cannot travel; use concrete types", ErrArguments, path, t)
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

// carries says whether a tensor or a reference can be reached.
func (c *codec) carries(seen map[*codec]bool) bool {
	if seen[c] {
		return false
	}
	seen[c] = true
	if c.kind == tensorValue || c.kind == refValue || (c.elem != nil && c.elem.carries(seen)) {
		return true
	}
	for _, f := range c.fields {
		if f.codec.carries(seen) {
			return true
		}
	}
	return false
}

// maxDepth bounds how deep a value may nest, so that a cycle of pointers is an error.
const maxDepth = 48

// packing is one value on its way out.
type packing struct {
	tensors []*autodiff.Tensor
	index   map[*autodiff.Tensor]int
	refs    []*sharing
}

// sharing is a reference in a value on its way out; id is known once it is shared with the receiver.
type sharing struct {
	ref *ref
	id  refID
}

// share counts the receiver's shares, or says under which name it can ask for them.
func (p *packing) share(c context.Context, w *Worker, to *peer) (err error) {
	for _, s := range p.refs {
		if s.id, err = w.share(c, s.ref, to); err != nil {
			return err
		}
	}
	return nil
}

// takeBack drops the shares that were counted for a receiver that did not take them.
func (p *packing) takeBack(w *Worker, from *peer) {
	for _, s := range p.refs {
		if s.id.Fork != 0 {
			w.owned.drop(s.id, from.rank)
		}
	}
}

// unpin ends the use of the references.
func (p *packing) unpin() {
	for _, s := range p.refs {
		s.ref.unpin()
	}
	p.refs = nil
}

// pack gives the CBOR form of v. A tensor appears once, however often the value holds it.
func (c *codec) pack(p *packing, v reflect.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: a %v nests deeper than %d; is there a cycle?", ErrArguments, c.typ, maxDepth)
	}
	switch c.kind {
	case tensorValue:
		return p.tensor(v.Interface().(*autodiff.Tensor))
	case refValue:
		r := v.Interface().(anyRef).core()
		if r == nil {
			return nil, nil
		}
		if err := r.pin(); err != nil {
			return nil, err
		}
		s := &sharing{ref: r}
		p.refs = append(p.refs, s)
		return &s.id, nil
	case pointer:
		if v.IsNil() {
			return nil, nil
		}
		return c.elem.pack(p, v.Elem(), depth+1)
	case list:
		if v.Kind() == reflect.Slice && v.IsNil() {
			return nil, nil
		}
		out := make([]any, v.Len())
		var err error
		for i := 0; i < len(out) && err == nil; i++ {
			out[i], err = c.elem.pack(p, v.Index(i), depth+1)
		}
		return out, err
	case table:
		if v.IsNil() {
			return nil, nil
		}
		out := make(map[string]any, v.Len())
		for _, k := range sortedKeys(v) {
			e, err := c.elem.pack(p, v.MapIndex(k), depth+1)
			if err != nil {
				return nil, err
			}
			out[keyText(k)] = e
		}
		return out, nil
	case record:
		out := make(map[string]any, len(c.fields))
		for _, f := range c.fields {
			e, err := f.codec.pack(p, v.Field(f.index), depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			out[f.name] = e
		}
		return out, nil
	}
	if c.kind == stays {
		return nil, c.cannotTravel()
	}
	raw, err := encode(v.Interface())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return cbor.RawMessage(raw), nil
}

func (c *codec) cannotTravel() error {
	return fmt.Errorf("%w: a %v cannot travel; use Remote and keep it where it is", ErrArguments, c.typ)
}

func (p *packing) tensor(t *autodiff.Tensor) (any, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	if i, have := p.index[t]; have {
		return i, nil
	}
	if p.index == nil {
		p.index = map[*autodiff.Tensor]int{}
	}
	i := len(p.tensors)
	p.index[t] = i
	p.tensors = append(p.tensors, t)
	return i, nil
}

// unpacking is one value on its way in.
type unpacking struct {
	tensors []*autodiff.Tensor
	refs    func(refID) (*ref, error)
}

// unpack fills v from its CBOR form.
func (c *codec) unpack(u *unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: a %v nests deeper than %d", ErrArguments, c.typ, maxDepth)
	}
	null := len(raw) == 1 && raw[0] == 0xf6
	switch {
	case c.kind == stays:
		return c.cannotTravel()
	case c.kind == plain:
		return c.decode(raw, v.Addr().Interface())
	case null && c.kind != record && c.typ.Kind() != reflect.Array:
		v.SetZero()
		return nil
	}
	switch c.kind {
	case tensorValue:
		var i int
		if err := c.decode(raw, &i); err != nil {
			return err
		}
		if i < 0 || i >= len(u.tensors) {
			return fmt.Errorf("%w: tensor %d of %d", ErrProtocol, i, len(u.tensors))
		}
		v.Set(reflect.ValueOf(u.tensors[i]))
	case refValue:
		var id refID
		if err := c.decode(raw, &id); err != nil {
			return err
		}
		r, err := u.refs(id)
		if err != nil {
			return err
		}
		v.Addr().Interface().(settableRef).setCore(r)
	case pointer:
		v.Set(reflect.New(c.typ.Elem()))
		return c.elem.unpack(u, raw, v.Elem(), depth+1)
	case list:
		return c.unpackList(u, raw, v, depth)
	case table:
		return c.unpackTable(u, raw, v, depth)
	case record:
		var parts map[string]cbor.RawMessage
		if err := c.decode(raw, &parts); err != nil {
			return err
		}
		for _, f := range c.fields {
			if part, ok := parts[f.name]; ok {
				if err := f.codec.unpack(u, part, v.Field(f.index), depth+1); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
		}
	}
	return nil
}

func (c *codec) unpackList(u *unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
	var parts []cbor.RawMessage
	if err := c.decode(raw, &parts); err != nil {
		return err
	}
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(c.typ, 0, 0))
	} else if v.Len() != len(parts) {
		return fmt.Errorf("%w: %d elements for a %v", ErrArguments, len(parts), c.typ)
	}
	for i, part := range parts {
		if v.Kind() == reflect.Slice { // grow with what is decoded, not with what is claimed
			v.Grow(1)
			v.SetLen(i + 1)
		}
		if err := c.elem.unpack(u, part, v.Index(i), depth+1); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (c *codec) unpackTable(u *unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
	var parts map[string]cbor.RawMessage
	if err := c.decode(raw, &parts); err != nil {
		return err
	}
	v.Set(reflect.MakeMap(c.typ))
	for name, part := range parts {
		key := reflect.New(c.typ.Key()).Elem()
		if err := setKey(key, name); err != nil {
			return fmt.Errorf("%w: %q is no key of a %v", ErrArguments, name, c.typ)
		}
		e := reflect.New(c.typ.Elem()).Elem()
		if err := c.elem.unpack(u, part, e, depth+1); err != nil {
			return fmt.Errorf("[%s]: %w", name, err)
		}
		v.SetMapIndex(key, e)
	}
	return nil
}

func (c *codec) decode(raw []byte, into any) error {
	if err := modes().dec.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrArguments, c.typ, err)
	}
	return nil
}

// keyText is a map's key on the wire; a String method of its type has no say.
func keyText(k reflect.Value) string {
	switch {
	case k.CanInt():
		return strconv.FormatInt(k.Int(), 10)
	case k.CanUint():
		return strconv.FormatUint(k.Uint(), 10)
	}
	return k.String()
}

// setKey is the inverse of keyText.
func setKey(k reflect.Value, text string) error {
	switch {
	case k.CanInt():
		n, err := strconv.ParseInt(text, 10, k.Type().Bits())
		k.SetInt(n)
		return err
	case k.CanUint():
		n, err := strconv.ParseUint(text, 10, k.Type().Bits())
		k.SetUint(n)
		return err
	}
	k.SetString(text)
	return nil
}

// sortedKeys gives a map's keys in an order that does not change from run to run.
func sortedKeys(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	names := make(map[string]reflect.Value, len(keys))
	for _, k := range keys {
		names[keyText(k)] = k
	}
	out := make([]reflect.Value, 0, len(keys))
	for _, n := range slices.Sorted(maps.Keys(names)) {
		out = append(out, names[n])
	}
	return out
}
