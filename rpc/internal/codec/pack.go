package codec

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/wire"
)

// maxDepth bounds how deep a value may nest, so that a cycle of pointers is an error.
const maxDepth = 48

// Packing is one value on its way out.
type Packing struct {
	Tensors []*autodiff.Tensor
	index   map[any]int // of tensors and references, each in its list
	Refs    []Ref
}

// Unpin ends the use of the references.
func (p *Packing) Unpin() {
	for _, r := range p.Refs {
		r.Unpin()
	}
	p.Refs = nil
}

// Encode writes the CBOR form of what ptr points to.
func (c *Codec) Encode(p *Packing, ptr any, b *bytes.Buffer) error {
	what := ptr
	switch {
	case c.kind == remains:
		return c.cannotTravel()
	case c.empty:
		return nil
	case c.kind != plain:
		var err error
		if what, err = c.pack(p, reflect.ValueOf(ptr).Elem(), 0); err != nil {
			return err
		}
	}
	if err := wire.Modes().Enc.MarshalToBuffer(what, b); err != nil {
		return fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return nil
}

// MaxRefs bounds the references in one message.
const MaxRefs = 1 << 16

// cborNull is nil in CBOR.
const cborNull = 0xf6

// pack gives the CBOR form of v. A tensor or reference travels once, however often the value holds
// it.
func (c *Codec) pack(p *Packing, v reflect.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: a %v nests deeper than %d; is there a cycle?", ErrArguments, c.typ, maxDepth)
	}
	switch c.kind {
	case tensorValue:
		return p.tensor(v.Interface().(*autodiff.Tensor))
	case refValue:
		return p.reference(c.types.RefOf(v))
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
			e, err := f.codec.pack(p, v.FieldByIndex(f.index), depth+1)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
			out[f.name] = e
		}
		return out, nil
	}
	if c.kind == remains {
		return nil, c.cannotTravel()
	}
	raw, err := wire.Encode(v.Interface())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArguments, err)
	}
	return cbor.RawMessage(raw), nil
}

// Collect lists the tensors and references in a value, and says what is wrong with them. The
// references are pinned, also where it fails, until Unpin.
func (c *Codec) Collect(v reflect.Value) (p Packing, err error) {
	if c.kind != plain && c.kind != remains {
		_, err = c.pack(&p, v, 0)
	}
	return p, err
}

// Has says whether a value holds a reference.
func (c *Codec) Has(v reflect.Value, r Ref) bool {
	if !c.refers {
		return false
	}
	var p Packing
	defer p.Unpin()
	_, _ = c.pack(&p, v, 0) // what did not fit would not have arrived
	return slices.Contains(p.Refs, r)
}

func (p *Packing) tensor(t *autodiff.Tensor) (any, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.Err(); err != nil {
		return nil, err
	}
	if i, have := p.index[t]; have {
		return i, nil
	}
	p.Tensors = append(p.Tensors, t)
	return p.noteAt(t, len(p.Tensors)-1), nil
}

func (p *Packing) reference(r Ref) (any, error) {
	if r == nil {
		return nil, nil
	}
	if i, have := p.index[r]; have {
		return i, nil
	}
	if len(p.Refs) == MaxRefs {
		return nil, fmt.Errorf("%w: more than %d references", ErrArguments, MaxRefs)
	}
	if err := r.Pin(); err != nil {
		return nil, err
	}
	p.Refs = append(p.Refs, r)
	return p.noteAt(r, len(p.Refs)-1), nil
}

// noteAt notes the place of something in its list.
func (p *Packing) noteAt(what any, i int) int {
	if p.index == nil {
		p.index = map[any]int{}
	}
	p.index[what] = i
	return i
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
