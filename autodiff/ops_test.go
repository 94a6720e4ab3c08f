package autodiff

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func TestEveryOpAgreesWithTheOracleAndItsGradientWithFiniteDifferences(t *testing.T) {
	for i, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			args := c.in(rng(uint64(i)))
			b := build(t, c, device.Float64, args)
			y, grads := b.oracle(args), b.differences(args)
			f := c.compiledFunc()
			whole := func(in []*Tensor) *Tensor { return f.Call(in...) }
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float64, here, b.eager), 1e-6, "eager")
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float64, here, whole), 1e-6, "compiled")
			b32 := build(t, c, device.Float32, args)
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float32, here, b32.eager), 2e-4, "float32")
			requireOutcome(t, y.shape, y.v, grads, runTensors(t, args, device.Float32, here, whole), 2e-4, "float32 compiled")
		})
	}
}

func TestEveryUnaryFunctionHasACaseAndARuleOfSpecialNumbers(t *testing.T) {
	cs, rules := cases(), scalarRules()
	for fn := range kernels.UnaryFn(kernels.UnaryFns) {
		require.True(t, slices.ContainsFunc(cs, func(c opCase) bool { return strings.EqualFold(c.name, fn.String()) }), "elementCases has no row of %v", fn)
		require.True(t, slices.ContainsFunc(rules, func(s scalarRule) bool {
			u, ok := s.instr.(kernels.Unary)
			return ok && u.Fn == fn
		}), "scalarRules has no row of %v", fn)
	}
}

func TestASimulatedDeviceGivesTheSameBytesAsTheProcessor(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	place := func(x *Tensor) *Tensor { return To(x, sim) }
	for i, c := range cases() {
		args := c.in(rng(uint64(i)))
		f := c.compiledFunc()
		whole := func(in []*Tensor) *Tensor { return f.Call(in...) }
		want := runTensors(t, args, device.Float32, here, whole)
		require.Equal(t, want, runTensors(t, args, device.Float32, place, whole), c.name)
	}
}

func TestTheHarnessSeesAWrongGradient(t *testing.T) {
	c := opCase{"x", fixed(normal, []int{2, 3}), func(g *Graph, in []node) node { return g.Tanh(in[0]) }, nil}
	args := c.in(rng(1))
	b := build(t, c, device.Float64, args)
	o := runTensors(t, args, device.Float64, here, b.eager)
	o.grads[0][4] *= 1 + 1e-4
	spy := &failures{TB: t}
	func() {
		defer func() { recover() }()
		requireOutcome(spy, b.oracle(args).shape, b.oracle(args).v, b.differences(args), o, 1e-6, "")
	}()
	require.True(t, spy.failed)
}

// failures is a test whose failure another test looks at.
type failures struct {
	testing.TB
	failed bool
}

func (f *failures) Errorf(string, ...any) { f.failed = true }
func (f *failures) FailNow()              { f.failed = true; panic("FailNow") }
