package autodiff

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff/internal/rows"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/kernels"
)

// lookups is a random loss over rows of a table, by lookups of one kind; the same random source
// gives the same loss.
func lookups(r *rand.Rand, owner *Arena, table *Tensor, lookup func(table, ids *Tensor) *Tensor) (loss *Tensor, dense bool) {
	v, d := table.typ.Shape[0], table.typ.Shape[1]
	loss = Scalar(0.0)
	_ = owner.Adopt(loss)
	for range 1 + r.IntN(5) {
		n := r.IntN(8)
		kind := []device.Dtype{device.Int32, device.Int64}[r.IntN(2)]
		var x *Tensor
		switch r.IntN(9) {
		case 0: // the table itself
			x, dense = Mul(table, tensorOf(normal(r, v, d).nd, device.Float64)), true
		case 1: // an op between the table and its rows
			x, dense = lookup(Tanh(table), tensorOf(ids(r, kind, v, n, 2).nd, kind)), true
		case 2: // an unused one
			lookup(table, tensorOf(ids(r, kind, v, n).nd, kind))
			continue
		case 3: // one that is made twice, of a table that is not an input
			rows := Checkpoint(func(in ...*Tensor) []*Tensor { return []*Tensor{Tanh(lookup(table, in[0]))} }, tensorOf(ids(r, kind, v, n).nd, kind))
			x = Mul(rows[0], tensorOf(normal(r, n, d).nd, device.Float64))
		default:
			picked := lookup(table, tensorOf(ids(r, kind, v, n).nd, kind))
			x = Mul(Tanh(picked), tensorOf(normal(r, n, d).nd, device.Float64))
		}
		loss = Add(loss, Sum(x))
	}
	return loss, dense
}

func TestSparseGradientsOfRandomLossesEqualTheDenseOnes(t *testing.T) {
	before := device.Host().Stats().Live
	for i := range soak.Cases(100) {
		r := rng(uint64(i))
		table := tensorOf(normal(r, 1+r.IntN(12), 1+r.IntN(3)).nd, device.Float64).RequireGrad()
		seed := r.Uint64()
		grads := map[bool]*Tensor{}
		a := NewArena("pass")
		sparse, none := true, false
		for _, lookup := range []func(table, ids *Tensor) *Tensor{Embedding, EmbeddingSparse} {
			loss, dense := lookups(rng(seed), a, table, lookup)
			if none = !loss.RequiresGrad(); none {
				break
			}
			g, err := Backward(loss)
			require.NoError(t, err)
			sparse = !sparse
			grads[sparse] = g.Of(table)
			if grads[sparse] == nil {
				continue
			}
			require.Equal(t, sparse && !dense, grads[sparse].IsSparse())
			require.True(t, grads[sparse].Type().Equal(table.Type()))
		}
		if !none {
			require.Equal(t, grads[false] == nil, grads[true] == nil)
			if grads[true] != nil {
				requireClose(t, numbers(t, grads[false]), numbers(t, grads[true]), 1e-12, "gradient")
				requireClose(t, numbers(t, grads[false]), numbers(t, grads[true].Coalesce()), 1e-12, "coalesced")
			}
		}
		a.Free()
		require.Equal(t, before, device.Host().Stats().Live, "case %d leaks", i)
	}
}

func TestTheRowsOfASparseGradientAreThoseThatWereLookedUp(t *testing.T) {
	table := Ones(device.Float32, 5, 2).RequireGrad()
	y := EmbeddingSparse(table, New([]int32{3, 1, 3}))
	g, err := BackwardWith(Options{Grads: []*Tensor{New([]float32{1, 2, 3, 4, 5, 6}, 3, 2)}}, y)
	require.NoError(t, err)
	d := g.Of(table)
	require.Contains(t, d.String(), "sparse")
	at, v, ok := d.Rows()
	require.True(t, ok)
	require.Equal(t, device.Int64, at.Dtype())
	require.Equal(t, []float64{3, 1, 3}, numbers(t, at))
	require.Equal(t, device.Shape{3, 2}, v.Shape())
	require.Equal(t, []float64{1, 2, 3, 4, 5, 6}, numbers(t, v))
	require.Equal(t, []float64{0, 0, 3, 4, 0, 0, 6, 8, 0, 0}, numbers(t, d), "what needs the value gets all of it")
	require.Equal(t, 21.0, numbers(t, Sum(d))[0])

	c := d.Coalesce()
	at, v, _ = c.Rows()
	require.Equal(t, []float64{1, 3}, numbers(t, at))
	require.Equal(t, []float64{3, 4, 6, 8}, numbers(t, v))
	require.Same(t, c, c.Coalesce())
	require.Same(t, table, table.Coalesce())
	_, _, ok = table.Rows()
	require.False(t, ok)
}

// PyTorch's test_no_grad_copy and its sparse twins: a gradient that nobody else has is not copied.
func TestAGradientOfTheRightFormIsNotCopiedOnItsWay(t *testing.T) {
	given := New([]float64{1, 2, 3, 4}, 2, 2)
	table := Ones(device.Float64, 5, 2).RequireGrad()
	g, err := BackwardWith(Options{Grads: []*Tensor{given}}, EmbeddingSparse(table, New([]int64{1, 0})))
	require.NoError(t, err)
	_, v, _ := g.Of(table).Rows()
	require.Same(t, bytesOf(t, given), bytesOf(t, v))

	dense := Ones(device.Float64, 2, 2).RequireGrad()
	g, err = BackwardWith(Options{Grads: []*Tensor{given}}, dense)
	require.NoError(t, err)
	require.Same(t, bytesOf(t, given), bytesOf(t, g.Of(dense)))
}

// PyTorch's test_no_grad_copy_sparse and test_grad_copy_sparse_indices_extra_ref: what somebody
// else sees is not changed.
func TestAccumulatingLeavesGradientsThatOthersHoldAlone(t *testing.T) {
	given, ids := New([]float64{1, 2}, 2, 1), New([]int64{1, 0})
	a, b := Ones(device.Float64, 3, 1).RequireGrad(), Ones(device.Float64, 3, 1).RequireGrad()
	ya, yb := EmbeddingSparse(a, ids), EmbeddingSparse(b, ids)
	g, err := BackwardWith(Options{Grads: []*Tensor{given, given, nil}}, ya, yb, Sum(EmbeddingSparse(a, New([]int64{1}))))
	require.NoError(t, err)
	held := g.Of(b)
	require.Equal(t, []float64{2, 2, 0}, numbers(t, g.Of(a)))
	require.Equal(t, []float64{2, 1, 0}, numbers(t, held))
	sum := AddGradients(held, held)
	require.True(t, sum.IsSparse())
	require.Equal(t, []float64{4, 2, 0}, numbers(t, sum))
	require.Equal(t, []float64{2, 1, 0}, numbers(t, held))
	require.Equal(t, []float64{1, 2}, numbers(t, given))
	require.Equal(t, []float64{1, 0}, numbers(t, ids))
}

func TestAnySumOfGradientsHoldsNoMoreRowsThanTheTensorHas(t *testing.T) {
	table := Ones(device.Float64, 4, 1).RequireGrad()
	var sum *Tensor
	for k := range 50 {
		g, err := Backward(Sum(EmbeddingSparse(table, New([]int64{int64(k % 4), 2, 3}))))
		require.NoError(t, err)
		if sum == nil {
			sum = g.Of(table)
		} else {
			sum = AddGradients(sum, g.Of(table))
		}
		at, _, ok := sum.Rows()
		require.True(t, ok)
		require.LessOrEqual(t, at.Shape()[0], 4)
	}
	require.Equal(t, []float64{13, 13, 62, 62}, numbers(t, sum))
	whole := AddGradients(sum, Ones(device.Float64, 4, 1))
	require.False(t, whole.IsSparse())
	require.Equal(t, []float64{14, 14, 63, 63}, numbers(t, whole))
	require.Equal(t, []float64{14, 14, 63, 63}, numbers(t, AddGradients(Ones(device.Float64, 4, 1), sum)))
}

func TestRowsAreAddedToAWholeThatNobodyElseSeesWithoutACopyOfIt(t *testing.T) {
	whole := Full(device.Float64, 1, 3, 1)
	rows := Sparse(3, New([]int64{2, 2}), New([]float64{5, 6}, 2, 1))
	transient := func(x *Tensor) *Tensor {
		s, err := x.share()
		require.NoError(t, err)
		return s
	}
	for _, sum := range []func(w, r *Tensor) (*Tensor, error){accumulate, func(w, r *Tensor) (*Tensor, error) { return accumulate(r, w) }} {
		alone, err := whole.copyTo(device.Host())
		require.NoError(t, err)
		at := bytesOf(t, alone)
		s, err := sum(alone, transient(rows))
		require.NoError(t, err)
		require.Same(t, at, bytesOf(t, s))
		require.Equal(t, []float64{1, 1, 12}, numbers(t, s))
		s.free()
		s, err = sum(transient(whole), transient(rows))
		require.NoError(t, err)
		require.Equal(t, []float64{1, 1, 12}, numbers(t, s))
		s.free()
		require.Equal(t, []float64{1, 1, 1}, numbers(t, whole))
	}
	_, v, _ := rows.Rows()
	require.Equal(t, []float64{5, 6}, numbers(t, v))
}

func TestASparseGraphCanBeRetainedAndIsOtherwiseUsedUp(t *testing.T) {
	table := Ones(device.Float64, 4, 1).RequireGrad()
	y := Sum(EmbeddingSparse(table, New([]int64{1, 1})))
	for range 2 {
		g, err := BackwardWith(Options{RetainGraph: true}, y)
		require.NoError(t, err)
		require.Equal(t, []float64{0, 2, 0, 0}, numbers(t, g.Of(table)))
	}
	_, err := Backward(y)
	require.NoError(t, err)
	_, err = Backward(y)
	require.ErrorIs(t, err, ErrGraphFreed)
}

func TestASparseGradientBelongsToItsPassWithAllThatIsMadeOfIt(t *testing.T) {
	before := device.Host().Stats().Live
	a := NewPassArena("7", nil)
	table, ids := Ones(device.Float64, 4, 1).RequireGrad(), New([]int64{1, 1})
	require.NoError(t, a.Adopt(ids))
	g, err := Backward(Sum(EmbeddingSparse(table, ids)))
	require.NoError(t, err)
	d := g.Of(table)
	at, v, _ := d.Rows()
	for _, x := range []*Tensor{d, at, v, d.Coalesce(), AddGradients(d, d), Mul(v, v), d.Detach(), Mul(d, d)} {
		require.NoError(t, x.Err())
		require.Same(t, a, x.Owner())
	}
	held := a.Bytes()
	require.NoError(t, a.Adopt(Sparse(1000, New([]int64{1}), New([]float64{1}))))
	require.Equal(t, held+16, a.Bytes(), "it holds its rows and no more")
	a.Free()
	require.Equal(t, before, device.Host().Stats().Live)
	_, _, ok := d.Rows()
	require.True(t, ok)
	at, _, _ = d.Rows()
	require.ErrorIs(t, at.Err(), ErrFreed)
	require.ErrorIs(t, d.Coalesce().Err(), ErrFreed)
	require.ErrorIs(t, AddGradients(d, d).Err(), ErrFreed)
	require.ErrorIs(t, d.Detach().Err(), ErrFreed)
	_, err = Values[float64](d)
	require.ErrorIs(t, err, ErrFreed)
}

func TestHooksSeeAndReplaceSparseGradients(t *testing.T) {
	before := device.Host().Stats().Live
	table := Ones(device.Float64, 4, 1).RequireGrad()
	_, err := table.OnGrad(func(g *Tensor) *Tensor {
		at, v, ok := g.Rows()
		require.True(t, ok)
		return Sparse(4, at, Scale(v, 10))
	})
	require.NoError(t, err)
	_, err = table.OnAccumulated(func(_, g *Tensor) error { require.True(t, g.IsSparse()); return nil })
	require.NoError(t, err)
	g, err := Backward(Sum(EmbeddingSparse(table, New([]int64{1, 3}))))
	require.NoError(t, err)
	require.True(t, g.Of(table).IsSparse())
	require.Equal(t, []float64{0, 10, 0, 10}, numbers(t, g.Of(table)))
	require.Equal(t, before, device.Host().Stats().Live)
}

func TestASparseGradientMovesBetweenDevicesAsRows(t *testing.T) {
	sim := device.NewSim(device.SimConfig{})
	table := Ones(device.Float64, 4, 1).RequireGrad()
	g, err := Backward(Sum(EmbeddingSparse(To(table, sim), To(New([]int64{2, 2}), sim))))
	require.NoError(t, err)
	d := g.Of(table)
	require.True(t, d.IsSparse())
	require.Equal(t, device.Host().ID(), d.Device())
	there := To(d, sim)
	require.True(t, there.IsSparse())
	require.Equal(t, sim.ID(), there.Device())
	require.Equal(t, []float64{0, 0, 2, 0}, numbers(t, there.Coalesce()))
	require.ErrorIs(t, AddGradients(d, there).Err(), ErrGradient)
}

func TestOnlyRowsOfTheTensorMakeASparseOne(t *testing.T) {
	before := device.Host().Stats().Live
	ids, v := New([]int64{0, 2}), New([]float32{1, 2, 3, 4}, 2, 2)
	good := Sparse(3, ids, v)
	require.NoError(t, good.Err())
	require.Equal(t, []float64{1, 2, 0, 0, 3, 4}, numbers(t, good))
	require.NoError(t, Sparse(0, New([]int64{}), Zeros(device.Float32, 0, 2)).Err())
	for name, bad := range map[string]*Tensor{
		"an id beyond the end":   Sparse(2, ids, v),
		"a negative id":          Sparse(3, New([]int64{0, -1}), v),
		"a negative extent":      Sparse(-1, New([]int64{}), Zeros(device.Float32, 0, 2)),
		"too large an extent":    Sparse(1<<60, ids, v),
		"another number of rows": Sparse(3, New([]int64{0}), v),
		"ids in two axes":        Sparse(3, New([]int64{0, 2}, 2, 1), v),
		"int32 ids":              Sparse(3, New([]int32{0, 2}), v),
		"integer values":         Sparse(3, ids, ids),
		"a scalar for values":    Sparse(3, New([]int64{}), Scalar(1.0)),
		"no tensors":             Sparse(3, nil, nil),
	} {
		require.Error(t, bad.Err(), name)
	}
	require.ErrorIs(t, Sparse(2, ids, v).Err(), kernels.ErrIndex)
	_, err := TransientSparse(3, rows.IDsType(2), fillOf(t, rows.IDsType(1)), rows.ValuesType(*v.typ, 2), fillOf(t, *v.typ))
	require.ErrorIs(t, err, ErrGradient, "the buffers are looked at, not the types alone")
	require.ErrorContains(t, Apply(sgd, []*Tensor{good, good}, 0), "sparse")
	require.ErrorIs(t, AddGradients(good, Sparse(4, ids, v)).Err(), ErrGradient)
	require.Equal(t, before, device.Host().Stats().Live)
}

func fillOf(t *testing.T, typ kernels.Type) *device.Buffer {
	b, err := fill(device.Host(), typ, 0)
	require.NoError(t, err)
	return b
}

// sparseStep allocates on dev only.
func sparseStep(a *Arena, table, ids *Tensor) error {
	rows := EmbeddingSparse(table, ids)
	g, err := Backward(Sum(rows), Sum(EmbeddingSparse(table, ids)))
	if err != nil {
		return err
	}
	for _, d := range g.All() {
		if err := errors.Join(d.Coalesce().Err(), AddGradients(d, d).Err(), AddGradients(d, ZerosLike(d)).Err(), To(d, device.Host()).Err()); err != nil {
			return err
		}
	}
	return nil
}

func TestADeviceThatIsFullAtAnyMomentLeavesNothingOfSparseGradients(t *testing.T) {
	host := device.Host().Stats().Live
	done := false
	for size := int64(32); !done; size += 32 {
		sim := device.NewSim(device.SimConfig{Bytes: size})
		a := NewArena("pass")
		table, ids := owned(t, a, device.Host(), 4, 4).RequireGrad(), New([]int32{3, 1, 3, 3, 3})
		require.NoError(t, a.Adopt(ids))
		err := sparseStep(a, To(table, sim), To(ids, sim))
		done = err == nil || !errors.Is(err, device.ErrMemory)
		require.True(t, err == nil || errors.Is(err, device.ErrMemory), "%v", err)
		a.Free()
		require.Zero(t, sim.Stats().Live, "%d bytes", size)
		require.Equal(t, host, device.Host().Stats().Live, "%d bytes", size)
	}
}

func TestABadIdIsToldOnceAndUnderTheNameThatWasCalled(t *testing.T) {
	table, ids := Ones(device.Float32, 4, 1).RequireGrad(), New([]int64{1, 9})
	for name, y := range map[string]*Tensor{"Embedding": Embedding(table, ids), "EmbeddingSparse": EmbeddingSparse(table, ids)} {
		var e *Error
		require.ErrorAs(t, y.Err(), &e)
		require.Equal(t, name, e.Op)
		index := &kernels.IndexError{Instr: "Gather", ID: 9, At: 1, N: 4}
		require.Equal(t, e.At+": "+name+": "+index.Error(), y.Err().Error())
		require.ErrorAs(t, y.Err(), &index)
	}
	bad := Exp(New([]int32{1}))
	require.ErrorContains(t, EmbeddingSparse(bad, ids).Err(), "Exp", "an error of an operand keeps its name")
}

func TestAnArenaMayBeFreedWhileASparseEmbeddingIsRecorded(t *testing.T) {
	table := Rand(8, 4).RequireGrad()
	for range 50 {
		a := NewArena("pass")
		ids := New([]int64{1, 2, 3})
		require.NoError(t, a.Adopt(ids))
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.Free()
		}()
		if y := EmbeddingSparse(table, ids); y.Err() != nil {
			require.ErrorIs(t, y.Err(), ErrFreed)
		}
		<-done
	}
}
