package rpc

import (
	"context"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/rpc/internal/wire"
)

type (
	base     struct{ N int }
	Base     struct{ N int }
	unseen   struct{ n int } //nolint:unused // the type is the case
	withBase struct {
		base
		M int
	}
	withBaseAndTensor struct {
		base
		T *autodiff.Tensor
	}
	CircleA     struct{ *CircleB }
	CircleB     struct{ *CircleA }
	outOfCircle struct {
		*CircleA
		X int
		Y int `cbor:"X"`
	}
	celsius  struct{ milli int }
	stamped  struct{ time.Time }
	overSafe struct { // has methods of its own
		time.Time
		N int
	}
)

func (c celsius) MarshalBinary() ([]byte, error)   { return []byte{byte(c.milli)}, nil }
func (c *celsius) UnmarshalBinary(b []byte) error  { c.milli = int(b[0]); return nil }
func (o overSafe) MarshalBinary() ([]byte, error)  { return []byte{byte(o.N)}, nil }
func (o *overSafe) UnmarshalBinary(b []byte) error { o.N = int(b[0]); return nil }
func (o overSafe) MarshalText() ([]byte, error)    { return nil, nil }
func (o *overSafe) UnmarshalText([]byte) error     { return nil }
func resultOf[T any](name string) *Func[int, T] {
	return Define(name, func(context.Context, int) (v T, err error) { return v, nil })
}
func argument[T any](*testing.T) error         { _, err := declare[T]("f").served(); return err }
func travels[T any](t *testing.T, v T) (got T) { return survives(t, v) }

// survives takes a value through the codec as a call does.
func survives[T any](t *testing.T, v T) (got T) {
	t.Helper()
	cd, err := forms.For(reflect.TypeFor[T]())
	require.NoError(t, err)
	raw, tensors, err := takeApart(cd, &v)
	require.NoError(t, err)
	require.NoError(t, putTogether(cd, raw, tensors, &got))
	return got
}

func TestAFieldThatWouldBeLostIsAnErrorOfTheDeclaration(t *testing.T) {
	type nested struct{ In struct{ unseen unseen } } //nolint:unused // the type is the case
	for name, c := range map[string]struct {
		err  error
		says string
	}{
		"beside others": {argument[struct{ A, b int }](t), ".b: it would be lost"}, //nolint:unused // the type is the case
		"with a tensor": {argument[struct {
			T *autodiff.Tensor
			b int
		}](t), ".b: it would be lost"}, //nolint:unused // likewise
		"nested":              {argument[nested](t), "nested.In.unseen: it would be lost"},
		"in a slice":          {argument[[]unseen](t), "unseen[].n: it would be lost"},
		"in an array":         {argument[[2]unseen](t), "unseen[].n: it would be lost"},
		"in a map":            {argument[map[string]unseen](t), "unseen[].n: it would be lost"},
		"behind pointers":     {argument[**unseen](t), "unseen.n: it would be lost"},
		"in a map of slices":  {argument[struct{ M map[int][]*unseen }](t), ".M[][].n: it would be lost"},
		"embedded":            {argument[struct{ unseen }](t), ".unseen.n: it would be lost"},
		"an embedded pointer": {argument[struct{ *base }](t), ".base: it would be lost"},
		"embedded, no struct": {argument[struct {
			time.Duration
			duration
		}](t), ".duration: it would be lost"},
		"a function": {argument[struct{ f func() }](t), ".f: it would be lost"}, //nolint:unused // likewise
		"a lock": {argument[struct {
			N  int
			mu sync.Mutex
		}](t), ".mu: it would be lost"}, //nolint:unused // likewise
		"an exported lock":     {argument[struct{ Mu sync.Mutex }](t), ".Mu"},
		"a function, exported": {argument[struct{ F func() }](t), ".F: func() cannot travel"},
		"a channel, exported":  {argument[struct{ C chan int }](t), ".C: chan int cannot travel"},
		"shadowed": {argument[struct {
			Base
			N int
		}](t), `.Base.N and struct { rpc.Base; N int }.N are both called "N" on the wire`},
		"twice": {argument[struct {
			A int
			B int `cbor:"A"`
		}](t), `are both called "A" on the wire`},
		"embedded twice": {argument[struct {
			Base
			base
		}](t), `are both called "N" on the wire`},
		"a promoted form": {argument[struct {
			time.Time
			N int
		}](t), "it has the form on the wire of the embedded Time"},
		"a promoted form, deep": {argument[struct {
			S struct {
				*url.URL
				N int
			}
		}](t), ".S: it has the form on the wire of the embedded URL"},
		"two forms": {argument[struct {
			time.Time
			netip.Addr
		}](t), "would be lost, for it is embedded and has a form of its own"},
		"embedded in a circle": {argument[outOfCircle](t), `are both called "X" on the wire`},
		"a method's argument": {func() error {
			_, err := DefineMethod("m", func(context.Context, int, unseen) (int, error) { return 0, nil }).served()
			return err
		}(), "methodArgs[int,github.com/weft-project/weft/rpc.unseen].In.n: it would be lost"},
		"an asynchronous function's": {func() error {
			_, err := DefineAsync("m", func(context.Context, unseen) (*Future[int], error) { return nil, nil }).served() //nolint:nilnil // it never runs
			return err
		}(), "unseen.n: it would be lost"},
	} {
		require.ErrorIs(t, c.err, ErrArguments, name)
		require.ErrorContains(t, c.err, c.says, name)
	}
	_, err := Config{Functions: []Function{declare[unseen]("secretive")}}.prepare()
	require.ErrorIs(t, err, ErrConfig)
	require.ErrorContains(t, err, `function "secretive": bad arguments: rpc.unseen.n: it would be lost`)
}

type duration time.Duration

func TestAResultOfWhichAFieldWouldBeLostStaysAndCallsForItSayWhy(t *testing.T) {
	ws := sim(t, 2, serve(resultOf[struct{ A, b int }]("half"))) //nolint:unused // the type is the case
	c := ws[0].Context(t.Context())
	half := resultOf[struct{ A, b int }]("half") //nolint:unused // likewise
	_, err := half.Call(c, "worker1", 1)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, ".b: it would be lost")
	require.ErrorContains(t, err, "use Remote")
	r := half.Remote(c, "worker1", 1)
	defer r.Release()
	require.NoError(t, r.Ready(c))
	_, err = r.ToHere(c)
	require.ErrorContains(t, err, ".b: it would be lost")
	_, err = AllGather(c, unseen{})
	require.ErrorContains(t, err, "it would be lost")
}

func TestWhatHasAFormOfItsOwnOrIsToldToStayIsFine(t *testing.T) {
	at := time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC)
	require.Equal(t, at, travels(t, at))
	require.Equal(t, stamped{at}, travels(t, stamped{at}), "nothing else would be lost")
	require.Equal(t, celsius{7}, travels(t, celsius{7}))
	require.Equal(t, []celsius{{7}}, travels(t, []celsius{{7}}))
	require.Equal(t, 8, travels(t, overSafe{at, 8}).N, "its form is its own")
	addr := netip.MustParseAddr("10.0.0.1")
	require.Equal(t, map[string]netip.Addr{"a": addr}, travels(t, map[string]netip.Addr{"a": addr}))
	require.Equal(t, "12", travels(t, big.NewInt(12)).String())
	require.Equal(t, withBase{base{1}, 2}, travels(t, withBase{base{1}, 2}))
	x := autodiff.Scalar(1.0)
	require.Equal(t, withBaseAndTensor{base{1}, x}, travels(t, withBaseAndTensor{base{1}, x}), "it was lost once")

	type told struct {
		_     [4]byte
		N     int
		mu    sync.Mutex   `cbor:"-"`
		cache map[int]bool `cbor:"-"`
		F     func()       `cbor:"-"`
		C     chan int     `json:"-"`
		none  struct{}
	}
	type toldWithTensor struct {
		T    *autodiff.Tensor
		Stay int `cbor:"-"`
	}
	got := travels(t, told{N: 3, cache: map[int]bool{1: true}, F: func() {}, C: make(chan int)}) //nolint:govet // the lock is not in use
	require.Equal(t, 3, got.N)
	require.Nil(t, got.cache)
	require.Nil(t, got.F)
	require.Nil(t, got.C)
	require.Equal(t, toldWithTensor{T: x}, travels(t, toldWithTensor{x, 5}))
	type dash struct {
		B int `cbor:"-,"`
		T *autodiff.Tensor
	}
	require.Equal(t, dash{2, x}, travels(t, dash{2, x}), "a comma makes it a name")
	got.mu.Lock()
	got.mu.Unlock() //nolint:staticcheck // it is a field that stays
	_ = got.none
}

type cause struct {
	Code  int
	inner error
}

func (c *cause) Error() string { return "cause" }

func TestATypeOfErrorsTravelsWithItsExportedFieldsAlone(t *testing.T) {
	typ := ErrorType[*cause]("cause")
	require.NoError(t, typ.err)
	raw, err := wire.Encode(&cause{Code: 3, inner: ErrBusy})
	require.NoError(t, err)
	got, err := typ.make(raw)
	require.NoError(t, err)
	require.Equal(t, &cause{Code: 3}, got)
}
