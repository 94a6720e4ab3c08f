package rpc

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/refs"
)

// maxDepth bounds how deep a value may nest, so that a cycle of pointers is an error.
const maxDepth = 48

// packing is one value on its way out.
type packing struct {
	tensors []*autodiff.Tensor
	index   map[any]int // of tensors and references, each in its list
	refs    []*ref
	shares  []refs.Share // the receiver's, once share has run
}

// share gives the receiver a share in each reference, which may be released then. ticket is the
// call's where this is an answer.
func (p *packing) share(c context.Context, w *Worker, to *peer, ticket uint64) error {
	for _, r := range p.refs {
		s, err := w.share(c, r, to, ticket)
		if err != nil {
			return err
		}
		p.shares = append(p.shares, s)
	}
	p.unpin() // the shares stand in for them
	return nil
}

// recall asks the shares back from a receiver that may not have got them.
func (p *packing) recall(w *Worker, from *peer) {
	if len(p.shares) > 0 {
		w.refs.do(func(m *refs.Machine, now time.Time) {
			for _, s := range p.shares {
				m.Recall(now, from.node, s)
			}
		})
	}
}

// unpin ends the use of the references.
func (p *packing) unpin() {
	for _, r := range p.refs {
		r.unpin()
	}
	p.refs = nil
}

// packTo writes the CBOR form of what ptr points to.
func (c *codec) packTo(p *packing, ptr any, b *bytes.Buffer) error {
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

// cborNull is nil in CBOR.
const cborNull = 0xf6

// pack gives the CBOR form of v. A tensor or reference travels once, however often the value holds
// it.
func (c *codec) pack(p *packing, v reflect.Value, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: a %v nests deeper than %d; is there a cycle?", ErrArguments, c.typ, maxDepth)
	}
	switch c.kind {
	case tensorValue:
		return p.tensor(v.Interface().(*autodiff.Tensor))
	case refValue:
		return p.reference(v.Interface().(anyRef).core())
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

// check says what is wrong with the tensors and references in a value that is kept here for
// references. It waits for the values that calls under in make, as an answer does: they would end
// with it.
func (c *codec) check(in context.Context, v reflect.Value) error {
	if c.kind == plain || c.kind == remains {
		return nil
	}
	var p packing
	defer p.unpin()
	_, err := c.pack(&p, v, 0)
	for _, r := range p.refs {
		if err == nil {
			err = r.settled(in)
		}
	}
	return err
}

// has says whether a value holds a reference.
func (c *codec) has(v reflect.Value, r *ref) bool {
	if !c.refers {
		return false
	}
	var p packing
	defer p.unpin()
	_, _ = c.pack(&p, v, 0) // what did not fit would not have arrived
	return slices.Contains(p.refs, r)
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
	p.tensors = append(p.tensors, t)
	return p.at(t, len(p.tensors)-1), nil
}

func (p *packing) reference(r *ref) (any, error) {
	if r == nil {
		return nil, nil
	}
	if i, have := p.index[r]; have {
		return i, nil
	}
	if len(p.refs) == maxRefs {
		return nil, fmt.Errorf("%w: more than %d references", ErrArguments, maxRefs)
	}
	if err := r.pin(); err != nil {
		return nil, err
	}
	p.refs = append(p.refs, r)
	return p.at(r, len(p.refs)-1), nil
}

// at notes the place of something in its list.
func (p *packing) at(what any, i int) int {
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
