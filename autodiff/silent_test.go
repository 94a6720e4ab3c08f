package autodiff

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// hereLine is "file:line:" of the caller, as errors begin.
func hereLine() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("%s:%d: ", file, line)
}

func TestRequireGradOnAResultIsAnErrorThatNamesTheLineAndTheOp(t *testing.T) {
	w := New([]float64{1, 2}).RequireGrad()
	y := Add(w, w)
	at, err := hereLine(), y.RequireGrad().Err()
	require.ErrorIs(t, err, ErrNotLeaf)
	require.ErrorContains(t, err, at+"RequireGrad: tensor is no leaf: it is a tensor ")
	require.ErrorContains(t, err, "from Add")
	require.ErrorContains(t, err, "Detach")
	require.Same(t, w, w.RequireGrad(), "a leaf may be told twice")
	plain := Add(w.Detach(), w.Detach())
	require.Same(t, plain, plain.RequireGrad(), "a result without a history is a leaf")
	again := y.Detach().RequireGrad()
	require.NoError(t, again.Err())
	require.True(t, again.RequiresGrad())
}

// Each op is called with a nil tensor in each place where it takes one.
func TestANilOperandsErrorNamesTheOpAndTheLine(t *testing.T) {
	x, ids := Rand(2, 3).RequireGrad(), New([]int64{1})
	arena := NewArena("pass 1")
	defer arena.Free()
	hook := func(g *Tensor) *Tensor { return g }
	second := func(_ any, err error) error { return err }
	for op, call := range map[string]func() error{
		"Add: operand 1":             func() error { return Add(x, nil).Err() },
		"Mul: operand 0":             func() error { return Mul(nil, x).Err() },
		"Neg: operand 0":             func() error { return Neg(nil).Err() },
		"Sum: operand 0":             func() error { return Sum(nil).Err() },
		"Scale: operand 0":           func() error { return Scale(nil, 2).Err() },
		"Concat: operand 1":          func() error { return Concat(0, x, nil).Err() },
		"Linear: operand 2":          func() error { return Linear(x, Rand(3, 2), nil).Err() },
		"Embedding: operand 0":       func() error { return Embedding(nil, ids).Err() },
		"EmbeddingSparse: operand 1": func() error { return EmbeddingSparse(x, nil).Err() },
		"CrossEntropy: operand 1":    func() error { return CrossEntropy(x, nil).Err() },
		"mine: operand 0":            func() error { return Define("mine", func(g *Graph, a node) node { return g.Neg(a) }).Call(nil).Err() },
		"RequireGrad":                func() error { return (*Tensor)(nil).RequireGrad().Err() },
		"Detach":                     func() error { return (*Tensor)(nil).Detach().Err() },
		"To":                         func() error { return To(nil, device.Host()).Err() },
		"Values":                     func() error { return second(Values[float32](nil)) },
		"Item":                       func() error { return second((*Tensor)(nil).Item()) },
		"FullLike":                   func() error { return FullLike(nil, 1).Err() },
		"FullLike: a":                func() error { return ZerosLike(nil).Err() },
		"Backward":                   func() error { return second(Backward(nil)) },
		"checkpoint": func() error {
			return Checkpoint(func(in ...*Tensor) []*Tensor { return in }, x, nil)[0].Err()
		},
		"Adopt":                     func() error { return arena.Adopt(nil) },
		"OnGrad":                    func() error { return second((*Tensor)(nil).OnGrad(hook)) },
		"AddGradients":              func() error { return AddGradients(x, nil).Err() },
		"Sparse":                    func() error { return Sparse(3, nil, x).Err() },
		"Acquire":                   func() error { return second((*Tensor)(nil).Acquire()) },
		"SGD":                       func() error { return Apply(kernels.Update{Rule: kernels.SGD, LR: 1, Step: 1}, []*Tensor{x, nil}, 0) },
		`Dropout\(0.5\): operand 0`: func() error { return Dropout(nil, RandomKey(1, 1), 0.5).Err() },
		`Dropout\(0.5\): operand 1`: func() error { return Dropout(x, nil, 0.5).Err() },
	} {
		err := call()
		assert.ErrorIs(t, err, ErrNil, op)
		assert.Regexp(t, `(?i)silent_test\.go:\d+: `+op, err.Error())
	}
}

func TestACheckpointOfNoFunctionIsAnError(t *testing.T) {
	err := Checkpoint(nil, Rand(2))[0].Err()
	require.ErrorIs(t, err, ErrFunction)
	require.ErrorContains(t, err, "silent_test.go:")
}
