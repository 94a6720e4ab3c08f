package codec

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// Unpacking is one value on its way in.
type Unpacking struct {
	Tensors []*autodiff.Tensor
	Refs    []Ref  // the value takes them over; those that it does not have are released
	used    []bool // which of Refs the value has
}

// leave releases the references that the value does not have: all of them where it failed.
func (u *Unpacking) leave(failed bool) {
	for i, r := range u.Refs {
		if failed || u.used == nil || !u.used[i] {
			r.Release()
		}
	}
}

// Decode fills what into points to from its CBOR form.
func (c *Codec) Decode(u *Unpacking, raw []byte, into any) (err error) {
	if c.kind == plain {
		err = c.decodePlain(raw, into)
	} else {
		u.used = make([]bool, len(u.Refs))
		err = c.unpack(u, raw, reflect.ValueOf(into).Elem(), 0)
	}
	u.leave(err != nil)
	return err
}

// unpack fills v from its CBOR form.
func (c *Codec) unpack(u *Unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: a %v nests deeper than %d", ErrArguments, c.typ, maxDepth)
	}
	null := len(raw) == 1 && raw[0] == cborNull
	switch {
	case c.kind == remains:
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
		if i < 0 || i >= len(u.Tensors) {
			return fmt.Errorf("%w: tensor %d of %d", wire.ErrProtocol, i, len(u.Tensors))
		}
		v.Set(reflect.ValueOf(u.Tensors[i]))
	case refValue:
		var i int
		if err := c.decode(raw, &i); err != nil {
			return err
		}
		if i < 0 || i >= len(u.Refs) {
			return fmt.Errorf("%w: reference %d of %d", wire.ErrProtocol, i, len(u.Refs))
		}
		u.used[i] = true
		c.types.SetRef(v, u.Refs[i])
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
				if err := f.codec.unpack(u, part, v.FieldByIndex(f.index), depth+1); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
		}
	}
	return nil
}

func (c *Codec) unpackList(u *Unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
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

func (c *Codec) unpackTable(u *Unpacking, raw cbor.RawMessage, v reflect.Value, depth int) error {
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

// decodePlain fills what into points to, of a type without tensors and references.
func (c *Codec) decodePlain(raw []byte, into any) error {
	if c.empty && len(raw) == 0 {
		return nil
	}
	return c.decode(raw, into)
}

func (c *Codec) decode(raw []byte, into any) error {
	if err := wire.Modes().Dec.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%w: %v: %w", ErrArguments, c.typ, err)
	}
	return nil
}
