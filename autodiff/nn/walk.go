package nn

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"

	"github.com/weft-project/weft/autodiff"
)

// walk meets all that is within a layer, through exported fields, elements, and the values of maps
// in the order of their keys, which are strings. What is not asked for is nil.
type walk struct {
	tensor func(path string, at place) bool // false ends the walk
	moded  func(m Moded)                    // after what is within m
	random func(path string, r Randomized)
	inside []any // the pointers on the way here: a layer may point back
}

// place is where a tensor lies.
type place struct {
	*autodiff.Tensor
	set func(*autodiff.Tensor) // nil where it lies in a struct that is no pointer
}

// visit says whether to go on. put replaces v in the map that it is in; nil elsewhere.
func (w *walk) visit(path string, v reflect.Value, put func(reflect.Value)) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer:
		return v.IsNil() || w.follow(path, v, put)
	}
	if !w.parts(path, v) {
		return false
	}
	if v.CanAddr() {
		v = v.Addr()
	}
	if m, ok := v.Interface().(Moded); ok && w.moded != nil {
		w.moded(m)
	}
	w.meet(path, v.Interface())
	return true
}

// meet looks for a source of random numbers.
func (w *walk) meet(path string, p any) {
	if w.random == nil {
		return
	}
	switch p := p.(type) {
	case *autodiff.Func:
		if seed, _ := p.Random(); seed != 0 { // it draws some
			w.random(under(path, "Random"), p)
		}
	case *rand.PCG:
		w.random(under(path, "Random"), generator{p})
	case Randomized:
		w.random(under(path, "Random"), p)
	}
}

// generator is a generator of the standard library's as a Randomized.
type generator struct{ of *rand.PCG }

// pcgMark begins a generator's binary form, and its state of 16 bytes follows.
const pcgMark = "pcg:"

func (g generator) Random() (high, low uint64) {
	b, _ := g.of.MarshalBinary() // it never fails
	return binary.BigEndian.Uint64(b[len(pcgMark):]), binary.BigEndian.Uint64(b[len(pcgMark)+8:])
}

func (g generator) SetRandom(high, low uint64) { g.of.Seed(high, low) }

// under is the path of what lies under another.
func under(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// follow goes to what v points to.
func (w *walk) follow(path string, v reflect.Value, put func(reflect.Value)) bool {
	p := v.Interface()
	if t, ok := p.(*autodiff.Tensor); ok {
		return w.tensor == nil || w.tensor(path, placeOf(t, v, put))
	}
	if _, ok := p.(Layer); !ok {
		w.meet(path, p)
		return true
	}
	if slices.Contains(w.inside, p) {
		return true
	}
	w.inside = append(w.inside, p)
	defer func() { w.inside = w.inside[:len(w.inside)-1] }()
	return w.visit(path, v.Elem(), nil)
}

func placeOf(t *autodiff.Tensor, v reflect.Value, put func(reflect.Value)) place {
	if put == nil && v.CanSet() {
		put = v.Set
	}
	if put == nil {
		return place{t, nil}
	}
	return place{t, func(t *autodiff.Tensor) { put(reflect.ValueOf(t)) }}
}

// parts visits fields, elements and values.
func (w *walk) parts(path string, v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Array, reflect.Map:
		if v.Type().Elem().Kind() <= reflect.Complex128 { // numbers, maybe many
			return true
		}
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for k := range v.Len() {
			if !w.visit(under(path, strconv.Itoa(k)), v.Index(k), nil) {
				return false
			}
		}
	case reflect.Map:
		if v.Type().Key().Kind() != reflect.String {
			return true
		}
		byName := map[string]reflect.Value{}
		for _, k := range v.MapKeys() {
			byName[k.String()] = k
		}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			k := byName[name]
			if !w.visit(under(path, name), v.MapIndex(k), func(to reflect.Value) { v.SetMapIndex(k, to) }) {
				return false
			}
		}
	case reflect.Struct:
		for k := range v.NumField() {
			if f := v.Type().Field(k); f.IsExported() && !w.visit(under(path, f.Name), v.Field(k), nil) {
				return false
			}
		}
	}
	return true
}
