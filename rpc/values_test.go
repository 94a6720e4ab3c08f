package rpc

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

type inner struct {
	Name  string
	T     *autodiff.Tensor
	Skip  *autodiff.Tensor
	Marks map[int8]bool
}

// everything is a value of every sort that may travel.
type everything struct {
	B      bool
	I      int64
	U      uint64
	F      float64
	S      string
	Raw    []byte
	When   time.Time
	Dev    device.ID
	P      *inner
	None   *inner
	List   []inner
	Pair   [2]*autodiff.Tensor
	ByName map[string]*autodiff.Tensor
	ByRank map[rankKeyed][]*autodiff.Tensor
	Big    map[uint64]*autodiff.Tensor
	Nested map[string]map[int][]*autodiff.Tensor
	Empty  []*autodiff.Tensor
	Nil    []*autodiff.Tensor
	NilMap map[string]*autodiff.Tensor
}

// rankKeyed prints itself as something else than its number.
type rankKeyed int

func (r rankKeyed) String() string { return "rank" }

var echo = Define("echo", func(_ context.Context, in everything) (everything, error) { return in, nil })

func TestValuesOfEverySortTravelThereAndBack(t *testing.T) {
	ws := sim(t, 2, serve(echo))
	a, b := autodiff.New([]float32{1, 2, 3}, 3), autodiff.New([]int64{math.MaxInt64, math.MinInt64}, 2, 1)
	in := everything{
		B: true, I: math.MinInt64, U: math.MaxUint64, F: math.Inf(1), S: "any bytes: \xff\x00é", Raw: []byte{0, 1},
		When: time.Date(2024, 2, 29, 1, 2, 3, 456789, time.UTC), Dev: device.CUDA(3),
		P:      &inner{Name: "p", T: a, Marks: map[int8]bool{-128: true}},
		List:   []inner{{T: b}, {Name: "second"}},
		Pair:   [2]*autodiff.Tensor{a, nil},
		ByName: map[string]*autodiff.Tensor{"": a, "é": nil, "\xfe": b},
		ByRank: map[rankKeyed][]*autodiff.Tensor{-1: {a, a}, 2: {}},
		Big:    map[uint64]*autodiff.Tensor{math.MaxUint64: b},
		Nested: map[string]map[int][]*autodiff.Tensor{"x": {-5: {nil, b}}, "y": nil},
		Empty:  []*autodiff.Tensor{},
	}
	c := ws[0].Context(t.Context())
	for _, to := range []string{"worker0", "worker1"} {
		out, err := echo.Call(c, to, in)
		require.NoError(t, err)
		require.Equal(t, in.When, out.When.UTC())
		out.When = in.When
		require.Same(t, out.P.T, out.Pair[0], "one tensor stays one tensor")
		require.Same(t, out.P.T, out.ByRank[-1][1])
		require.Same(t, out.List[0].T, out.Big[math.MaxUint64])
		require.NotSame(t, a, out.P.T)
		sameTensors(t, a, out.P.T)
		sameTensors(t, b, out.List[0].T)
		put := func(p **autodiff.Tensor, want *autodiff.Tensor) { *p = want }
		put(&out.P.T, a)
		put(&out.Pair[0], a)
		put(&out.List[0].T, b)
		out.ByName[""], out.ByName["\xfe"], out.ByRank[-1][0], out.ByRank[-1][1] = a, b, a, a
		out.Big[math.MaxUint64], out.Nested["x"][-5][1] = b, b
		require.Equal(t, in, out)
	}
}

func sameTensors(t testing.TB, want, got *autodiff.Tensor) {
	t.Helper()
	require.Equal(t, want.Dtype(), got.Dtype())
	require.True(t, want.Shape().Equal(got.Shape()), "%v, %v", want.Shape(), got.Shape())
	require.Equal(t, rawBytes(t, want), rawBytes(t, got))
}

func rawBytes(t testing.TB, x *autodiff.Tensor) []byte {
	t.Helper()
	buf, err := x.Acquire()
	require.NoError(t, err)
	defer func() { require.NoError(t, buf.Release()) }()
	out := make([]byte, buf.Len())
	require.NoError(t, buf.Device().Download(out, buf, 0))
	return out
}

var echoTensors = Define("echo tensors", func(_ context.Context, in []*autodiff.Tensor) ([]*autodiff.Tensor, error) { return in, nil })

func TestTensorsOfEveryDtypeAndRankTravelBitByBit(t *testing.T) {
	nan := math.Float32frombits(0x7fc12345)
	in := []*autodiff.Tensor{
		autodiff.New([]float32{nan, float32(math.Inf(-1)), float32(math.Copysign(0, -1)), 1e-45}, 2, 2),
		autodiff.New([]float64{math.NaN(), math.MaxFloat64, math.Copysign(0, -1)}, 3, 1),
		autodiff.New([]int32{math.MinInt32, math.MaxInt32}, 1, 1, 2),
		autodiff.New([]int64{math.MinInt64}, 1, 1, 1, 1),
		autodiff.Scalar[float64](7), autodiff.Scalar[int32](-7),
		autodiff.Zeros(device.Float32, 0), autodiff.Zeros(device.Int64, 3, 0, 2),
		autodiff.Rand(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2), autodiff.Rand(300, 301), nil,
	}
	check := func(t *testing.T, ws []*Worker) {
		c := ws[0].Context(t.Context())
		for _, to := range []string{"worker1", "worker0"} {
			out, err := echoTensors.Call(c, to, in)
			require.NoError(t, err)
			require.Len(t, out, len(in))
			for i := range in {
				if in[i] == nil {
					require.Nil(t, out[i])
					continue
				}
				sameTensors(t, in[i], out[i])
				require.Nil(t, out[i].Owner(), "outside of a pass it belongs to nobody")
			}
		}
	}
	t.Run("simnet", func(t *testing.T) { check(t, sim(t, 2, serve(echoTensors))) })
	t.Run("quic", func(t *testing.T) { check(t, world(t, 2, nil, serve(echoTensors))) })
}

type withEmbedded struct {
	RRef[int]
	Note string
}

var (
	noArgs    = Define("no args", func(context.Context, struct{}) (struct{}, error) { return struct{}{}, nil })
	plainInt  = Define("plain int", func(_ context.Context, in int) (*int, error) { return &in, nil })
	nilResult = Define("nil result", func(context.Context, *int) (*autodiff.Tensor, error) { return nil, nil })
	embedded  = Define("embedded", func(_ context.Context, in withEmbedded) (string, error) { return in.Note + in.Owner(), nil })
)

func TestBareNilAndEmptyArgumentsAndResultsTravel(t *testing.T) {
	ws := sim(t, 2, serve(noArgs, plainInt, nilResult, embedded))
	c := ws[0].Context(t.Context())
	_, err := noArgs.Call(c, "worker1", struct{}{})
	require.NoError(t, err)
	n, err := plainInt.Call(c, "worker1", 41)
	require.NoError(t, err)
	require.Equal(t, 41, *n)
	x, err := nilResult.Call(c, "worker1", nil)
	require.NoError(t, err)
	require.Nil(t, x)
	r, err := NewRRef(c, 5)
	require.NoError(t, err)
	s, err := embedded.Call(c, "worker1", withEmbedded{r, "of "})
	require.NoError(t, err)
	require.Equal(t, "of worker0", s, "a struct that embeds a reference keeps its other fields")
	r.Release()
}

func TestATensorThatCarriesAnErrorFailsTheCallAtTheCaller(t *testing.T) {
	ws := sim(t, 2, serve(addFn))
	bad := autodiff.Add(autodiff.Rand(2), autodiff.Rand(3))
	_, err := addFn.Call(ws[0].Context(t.Context()), "worker1", pair{bad, bad})
	require.ErrorContains(t, err, "(2)")
	require.ErrorContains(t, err, "values_test.go", "the user's line is named")
	var remote *RemoteError
	require.NotErrorAs(t, err, &remote)
}

func TestAResultBeyondTheWiresLimitsGivesAnErrorThatSaysSo(t *testing.T) {
	huge := Define("huge", func(_ context.Context, n int) ([]byte, error) { return make([]byte, n), nil })
	ws := sim(t, 2, serve(huge))
	c := ws[0].Context(t.Context())
	_, err := huge.Call(c, "worker1", 2<<20)
	require.ErrorIs(t, err, ErrArguments)
	require.ErrorContains(t, err, "1048576 bytes")
	got, err := huge.Call(c, "worker1", 1<<19)
	require.NoError(t, err)
	require.Len(t, got, 1<<19)
}

func TestResultsMayBePartsOfArgumentsAndAsLargeAsTheDataSays(t *testing.T) {
	parts := Define("parts", func(_ context.Context, x *autodiff.Tensor) ([]*autodiff.Tensor, error) {
		return []*autodiff.Tensor{x, autodiff.Reshape(x, 6), autodiff.Transpose(x), autodiff.Slice(x, 0, 1, 2)}, nil
	})
	nonzero := Define("nonzero", func(_ context.Context, x *autodiff.Tensor) (*autodiff.Tensor, error) {
		values, err := autodiff.Values[float32](x)
		var at []int64
		for i, v := range values {
			if v != 0 {
				at = append(at, int64(i))
			}
		}
		return autodiff.New(at, len(at)), err
	})
	ws := sim(t, 2, serve(parts, nonzero))
	c := ws[0].Context(t.Context())
	x := autodiff.New([]float32{1, 0, 3, 4, 0, 6}, 2, 3)
	for _, to := range []string{"worker1", "worker0"} {
		got, err := parts.Call(c, to, x)
		require.NoError(t, err)
		for i, want := range [][]float32{{1, 0, 3, 4, 0, 6}, {1, 0, 3, 4, 0, 6}, {1, 4, 0, 0, 3, 6}, {4, 0, 6}} {
			values, err := autodiff.Values[float32](got[i])
			require.NoError(t, err)
			require.Equal(t, want, values)
		}
		for in, want := range map[*autodiff.Tensor][]int64{x: {0, 2, 3, 5}, autodiff.New([]float32{0}): {}} {
			found, err := nonzero.Call(c, to, in)
			require.NoError(t, err)
			values, err := autodiff.Values[int64](found)
			require.NoError(t, err)
			require.Equal(t, want, values)
		}
	}
}
