package autodiff

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
)

// guests are two parameters whose values come and go, and what they are.
type guests struct {
	w, b   *Tensor
	values map[*Tensor]*device.Buffer
	came   int
	grads  [][]float32
	refuse error
}

func newGuests(t *testing.T) *guests {
	src := rand.New(rand.NewPCG(1, 1))
	g := &guests{w: NormalFrom(src, 1, 3, 4).RequireGrad(), b: NormalFrom(src, 1, 4).RequireGrad(), values: map[*Tensor]*device.Buffer{}}
	for _, p := range []*Tensor{g.w, g.b} {
		b, err := p.Acquire()
		require.NoError(t, err)
		g.values[p] = b
	}
	require.NoError(t, ComeAndGo(Visit{Name: "guests", Device: device.Host(), Bring: g.bring, Take: g.take}, g.w, g.b))
	return g
}

func (g *guests) bring(t *Tensor) error {
	if g.refuse != nil {
		return g.refuse
	}
	g.came++
	return t.Put(g.values[t].Retain())
}

func (g *guests) take(grads []*Tensor) error {
	for _, d := range grads {
		var v []float32
		if d != nil {
			var err error
			if v, err = Values[float32](d); err != nil {
				return err
			}
		}
		g.grads = append(g.grads, v)
	}
	return nil
}

func (g *guests) leave(t *testing.T) {
	require.NoError(t, g.w.Put(nil))
	require.NoError(t, g.b.Put(nil))
}

// activity is what is computed of them, with a function that reads w in its backward.
func activity(w, b, x *Tensor) *Tensor { return Sum(Tanh(Add(MatMul(x, w), b))) }

func TestABackwardReadsAnewWhatHasGoneAndNoTableHasItsGradient(t *testing.T) {
	src := rand.New(rand.NewPCG(2, 2))
	x := NormalFrom(src, 1, 2, 3).RequireGrad()
	own := rand.New(rand.NewPCG(1, 1))
	w, b := NormalFrom(own, 1, 3, 4).RequireGrad(), NormalFrom(own, 1, 4).RequireGrad()
	want, err := Backward(activity(w, b, x))
	require.NoError(t, err)
	for _, retain := range []bool{false, true} {
		g := newGuests(t)
		loss := activity(g.w, g.b, x)
		require.NoError(t, loss.Err())
		require.Equal(t, 2, g.came)
		for _, v := range g.values {
			require.False(t, v.Exclusive(), "it is there")
		}
		g.leave(t)
		require.True(t, g.values[g.w].Exclusive(), "nobody keeps the value")
		for range 2 {
			got, err := BackwardWith(Options{RetainGraph: retain}, loss)
			if !retain && len(g.grads) > 2 {
				require.ErrorIs(t, err, ErrGraphFreed)
				break
			}
			require.NoError(t, err)
			require.Equal(t, 1, got.Len())
			require.Equal(t, valuesOf(t, want.Of(x)), valuesOf(t, got.Of(x)))
			require.Equal(t, valuesOf(t, want.Of(w)), g.grads[len(g.grads)-2])
			require.Equal(t, valuesOf(t, want.Of(b)), g.grads[len(g.grads)-1])
			g.leave(t)
			if !retain {
				g.grads = append(g.grads, nil)
			}
		}
		require.True(t, g.values[g.w].Exclusive())
	}
}

func valuesOf(t *testing.T, x *Tensor) []float32 {
	v, err := Values[float32](x)
	require.NoError(t, err)
	return v
}

func TestACheckpointDoesNotKeepWhatComesAndGoes(t *testing.T) {
	x := Ones(device.Float32, 2, 3).RequireGrad()
	g := newGuests(t)
	want := activity(g.w, g.b, x)
	_, err := Backward(want)
	require.NoError(t, err)
	loss := Checkpoint(func(in ...*Tensor) []*Tensor { return []*Tensor{activity(g.w, g.b, in[0])} }, x)[0]
	require.NoError(t, loss.Err())
	g.leave(t)
	require.True(t, g.values[g.w].Exclusive())
	before := g.came
	_, err = Backward(loss)
	require.NoError(t, err)
	require.Equal(t, 2, g.came-before)
	require.Equal(t, g.grads[:2], g.grads[2:])
}

func TestWhatDoesNotComeIsAnErrorWhereItIsRead(t *testing.T) {
	g := newGuests(t)
	x := Ones(device.Float32, 2, 3)
	loss := activity(g.w, g.b, x)
	g.leave(t)
	g.refuse = errors.New("it is elsewhere")
	require.ErrorIs(t, activity(g.w, g.b, x).Err(), g.refuse)
	_, err := Values[float32](g.w)
	require.ErrorIs(t, err, g.refuse)
	_, err = BackwardWith(Options{}, loss) // Tanh's and Add's backwards read no parameter; x wants no gradient
	require.NoError(t, err)
	y := Ones(device.Float32, 2, 3).RequireGrad()
	g.refuse = nil
	loss = activity(g.w, g.b, y)
	g.leave(t)
	g.refuse = errors.New("it is elsewhere")
	_, err = Backward(loss)
	require.ErrorIs(t, err, g.refuse)
	g.refuse = nil
	require.ErrorIs(t, ComeAndGo(Visit{Device: device.Host()}, g.w), ErrNotLeaf)
	twice := Ones(device.Float32, 2).RequireGrad()
	require.ErrorIs(t, ComeAndGo(Visit{Device: device.Host()}, twice, twice), ErrNotLeaf)
	require.ErrorIs(t, ComeAndGo(Visit{Device: device.Host()}, Ones(device.Float32, 2)), ErrNotLeaf)
	require.Error(t, ComeAndGo(Visit{}, twice))
	require.True(t, twice.IsLeaf(), "nothing has changed")
	require.Error(t, twice.Put(nil))
	require.ErrorIs(t, g.b.Put(g.values[g.w]), device.ErrBounds)
}
