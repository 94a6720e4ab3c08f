package rpc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/codec"
)

// roundTripValue packs v as its type's codec says and unpacks it again, without a wire.
func roundTripValue(t testing.TB, v reflect.Value) (reflect.Value, error) {
	t.Helper()
	cd, err := forms.For(v.Type())
	require.NoError(t, err, "%v", v.Type())
	var p codec.Packing
	var raw bytes.Buffer
	in, out := reflect.New(v.Type()), reflect.New(v.Type())
	in.Elem().Set(v)
	if err := cd.Encode(&p, in.Interface(), &raw); err != nil {
		return reflect.Value{}, err
	}
	return out.Elem(), cd.Decode(&codec.Unpacking{Tensors: p.Tensors}, raw.Bytes(), out.Interface())
}

var tensorType = reflect.TypeFor[*autodiff.Tensor]()

// maker makes random types and random values of them.
type maker struct {
	r       *rand.Rand
	tensors []*autodiff.Tensor
}

var scalarTypes = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int64](), reflect.TypeFor[uint16](),
	reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[string](), reflect.TypeFor[[]byte](),
	reflect.TypeFor[time.Duration](), tensorType, tensorType, tensorType,
}

var keyTypes = []reflect.Type{
	reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[uint64](), reflect.TypeFor[rankKeyed](),
}

func pick[T any](m *maker, from []T) T { return from[m.r.IntN(len(from))] }

func (m *maker) typ(depth int) reflect.Type {
	if depth == 0 {
		return pick(m, scalarTypes)
	}
	switch m.r.IntN(6) {
	case 0:
		return reflect.SliceOf(m.typ(depth - 1))
	case 1:
		return reflect.ArrayOf(1+m.r.IntN(3), m.typ(depth-1))
	case 2:
		return reflect.MapOf(pick(m, keyTypes), m.typ(depth-1))
	case 3: // a nil pointer and a pointer to nil look the same on the wire
		if e := m.typ(depth - 1); e.Kind() != reflect.Pointer && e.Kind() != reflect.Slice && e.Kind() != reflect.Map {
			return reflect.PointerTo(e)
		}
		return pick(m, scalarTypes)
	case 4:
		return pick(m, scalarTypes)
	}
	var fields []reflect.StructField
	for i := range 1 + m.r.IntN(4) {
		fields = append(fields, reflect.StructField{Name: string(rune('A' + i)), Type: m.typ(depth - 1)})
	}
	return reflect.StructOf(fields)
}

func (m *maker) fill(v reflect.Value) {
	switch {
	case v.Type() == tensorType:
		if x := pick(m, m.tensors); x != nil {
			v.Set(reflect.ValueOf(x))
		}
		return
	case v.CanInt():
		v.SetInt(int64(m.r.Uint64()))
		return
	case v.CanUint():
		v.SetUint(m.r.Uint64())
		return
	case v.CanFloat():
		v.SetFloat(m.r.NormFloat64())
		return
	}
	n := m.r.IntN(4)
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(n == 0)
	case reflect.String:
		raw := make([]byte, m.r.IntN(40))
		for i := range raw {
			raw[i] = byte(m.r.Uint32())
		}
		v.SetString(string(raw))
	case reflect.Pointer:
		if n > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			m.fill(v.Elem())
		}
	case reflect.Slice:
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		for i := range v.Len() {
			m.fill(v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			m.fill(v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			m.fill(v.Field(i))
		}
	case reflect.Map:
		if n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
		}
		for range n - 1 {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			m.fill(k)
			m.fill(e)
			v.SetMapIndex(k, e)
		}
	}
}

func TestRandomValuesOfRandomTypesSurviveTheCodec(t *testing.T) {
	m := &maker{r: rand.New(rand.NewPCG(1, 2)), tensors: []*autodiff.Tensor{nil, autodiff.Rand(2), autodiff.Scalar[int32](1), autodiff.Rand(1, 0)}}
	for range 1500 {
		v := reflect.New(m.typ(m.r.IntN(5))).Elem()
		m.fill(v)
		got, err := roundTripValue(t, v)
		require.NoError(t, err, "%v", v.Type())
		if !reflect.DeepEqual(v.Interface(), got.Interface()) {
			require.Equal(t, v.Interface(), got.Interface(), "%v", v.Type())
		}
	}
}

type (
	chain struct {
		Next *chain
		N    int
	}
	tensorTree struct {
		Left, Right *tensorTree
		Kids        []tensorTree
		ByName      map[string]*tensorTree
		T           *autodiff.Tensor
	}
	hidden     struct{ t *autodiff.Tensor } //nolint:unused // the type is the case
	hiddenDeep struct {
		Name, x string                //nolint:unused // the type is the case
		in      map[string][2]*hidden //nolint:unused // the type is the case
	}
	hiddenLater struct{ in map[string][2]*hidden } //nolint:unused // the type is the case
	closed      struct{ a, b int }                 //nolint:unused // the type is the case
	hiddenRef   struct {
		N int
		r []RRef[int] //nolint:unused // the type is the case
	}
	timed struct {
		At time.Time
		T  *autodiff.Tensor
	}
	wide         struct{ L [][1 << 16]*autodiff.Tensor }
	recursiveMap map[string]recursiveMap
	recursiveArr []recursiveArr
)

func TestRecursiveTypesTravelAndCyclicValuesAreAnError(t *testing.T) {
	x := autodiff.Rand(1)
	tree := tensorTree{Left: &tensorTree{T: x, Kids: []tensorTree{{}, {T: x}}}, ByName: map[string]*tensorTree{"a": {T: x}, "b": nil}}
	got, err := roundTripValue(t, reflect.ValueOf(tree))
	require.NoError(t, err)
	require.Equal(t, tree, got.Interface())
	line := chain{N: 1, Next: &chain{N: 2, Next: &chain{N: 3}}}
	got, err = roundTripValue(t, reflect.ValueOf(line))
	require.NoError(t, err)
	require.Equal(t, line, got.Interface())

	loop := &chain{}
	loop.Next = loop
	m := recursiveMap{}
	m["m"] = m
	a := recursiveArr{nil}
	a[0] = a
	knot := &tensorTree{}
	knot.Kids = []tensorTree{{Left: knot}}
	for _, v := range []any{loop, *loop, m, a, knot} {
		_, err := roundTripValue(t, reflect.ValueOf(v))
		require.ErrorIs(t, err, ErrArguments)
		require.ErrorContains(t, err, "cycle")
	}
}

func TestTimesKeepTheirNanosecondsAndTheirZone(t *testing.T) {
	at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.FixedZone("", -5*3600))
	got, err := roundTripValue(t, reflect.ValueOf(timed{at, autodiff.Rand(1)}))
	require.NoError(t, err)
	require.True(t, at.Equal(got.Interface().(timed).At))
	require.Equal(t, at.String(), got.Interface().(timed).At.String())
}

func declare[T any](name string) Function {
	return Define(name, func(context.Context, T) (int, error) { return 0, nil })
}

func TestDeclarationsThatCannotTravelSayWhatAndWhere(t *testing.T) {
	for _, c := range []struct {
		f    Function
		says string
	}{
		{declare[any]("any"), "interface {}: interface {} cannot travel; use concrete types"},
		{declare[struct{ E []error }]("error"), ".E[]: error cannot travel"},
		{declare[chan int]("chan"), "chan int cannot travel"},
		{declare[map[string]func()]("func"), "func() cannot travel"},
		{declare[struct{ P uintptr }]("uintptr"), ".P: uintptr"},
		{declare[complex64]("complex"), "complex64 cannot travel"},
		{declare[hidden]("hidden"), "hidden.t: a field that holds tensors must be exported"},
		{declare[hiddenDeep]("deep"), "hiddenDeep.x: it would be lost, for it is not exported"},
		{declare[hiddenLater]("later"), "hiddenLater.in: a field that holds tensors must be exported"},
		{declare[hiddenRef]("ref"), "hiddenRef.r: a field that holds tensors must be exported"},
		{declare[closed]("closed"), "closed.a: it would be lost, for it is not exported; export it, or tag it `cbor:\"-\"` where it is to stay"},
		{declare[autodiff.Tensor]("value"), "tensors travel as *autodiff.Tensor"},
		{declare[map[bool]int]("bool"), "map keys must be strings or integers, not bool"},
		{declare[map[[2]int]*autodiff.Tensor]("array"), "map keys must be strings or integers, not [2]int"},
		{declare[map[float64]int]("float"), "map keys must be"},
		{Define[int, int]("nil", nil), `"nil" is nil`},
		{declare[int](""), "1 to 128 bytes, not 0"},
		{declare[int](string(make([]byte, 129))), "not 129"},
	} {
		_, err := c.f.served()
		require.ErrorContains(t, err, c.says)
	}
}

func TestACallOfABadDeclarationFailsWithoutAWire(t *testing.T) {
	ws := sim(t, 2, nil)
	c := ws[0].Context(t.Context())
	bad := Define("bad", func(context.Context, any) (int, error) { return 0, nil })
	_, err := bad.Call(c, "worker1", 1)
	require.ErrorIs(t, err, ErrArguments)
	_, err = bad.Async(c, "worker1", 1).Wait(c)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorIs(t, bad.Remote(c, "worker1", 1).Ready(c), ErrArguments)
}

type machine struct{ steps int } // cannot travel

func TestAResultThatCannotTravelStaysWhereItIsAndCallsForItDoNotRun(t *testing.T) {
	made := 0
	build := Define("build", func(context.Context, int) (*machine, error) { made++; return &machine{}, nil })
	step := Define("step", func(c context.Context, r RRef[*machine]) (int, error) {
		m, err := r.LocalValue(c)
		if err != nil {
			return 0, err
		}
		m.steps++
		return m.steps, nil
	})
	ws := sim(t, 2, serve(build, step))
	c := ws[0].Context(t.Context())
	_, err := build.Call(c, "worker1", 0)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "a *rpc.machine cannot travel; use Remote")
	_, err = build.Async(c, "worker1", 0).Wait(c)
	require.ErrorIs(t, err, ErrArguments)
	require.Zero(t, made, "nothing ran in vain")
	r := build.Remote(c, "worker1", 0)
	for want := 1; want < 4; want++ {
		n, err := step.Call(c, "worker1", r)
		require.NoError(t, err)
		require.Equal(t, want, n)
	}
	_, err = r.ToHere(c)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "machine.steps: it would be lost")
	_, err = step.Call(c, "worker0", r)
	require.Error(t, err, "worker0 does not own it")
	r.Release()
	collected(t, "the machine is dropped", func() bool { return ws[1].Owned() == 0 })
}
