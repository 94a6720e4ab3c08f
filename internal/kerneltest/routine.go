package kerneltest

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// routine is a random list of calls over two buffers: given, which is only read, and an arena,
// where results lie and from where later calls take operands.
type routine struct {
	gen
	d        device.Device
	families []string
	calls    []kernels.Call
	given    []byte
	size     int // of the arena
	made     []made
}

// made is a value in the arena that nothing has been written over.
type made struct {
	kernels.Place
	Tensor
}

const arena = 1 // the second buffer

// CheckRoutine draws a routine of n instructions and compares it with the instructions run one by
// one.
func CheckRoutine(t testing.TB, d device.Device, r *rand.Rand, n int) {
	t.Helper()
	checkRoutine(t, d, r, Families(), n)
}

func checkRoutine(t testing.TB, d device.Device, r *rand.Rand, families []string, n int) {
	t.Helper()
	g := &routine{gen: gen{Rand: r}, d: d, families: families, size: 8 << 10}
	var wantErr error
	for range n {
		if wantErr = g.draw(t); wantErr != nil {
			break
		}
	}
	b, err := backend.For(d)
	require.NoError(t, err)
	run, err := b.Assemble(g.calls, []int{len(g.given), g.size}, []bool{false, true})
	require.NoError(t, err)
	in, err := d.Alloc(len(g.given))
	require.NoError(t, err)
	bufs := []*device.Buffer{in, garbage(t, d, g.size)}
	defer release(t, bufs)
	require.NoError(t, d.Upload(in, 0, g.given))
	for range 2 {
		err = run.Run(bufs)
		if err == nil {
			err = late(t, d)
		}
		if wantErr != nil {
			var at *kernels.CallError
			require.True(t, errors.As(err, &at), "%v", err)
			require.Equal(t, len(g.calls)-1, at.At)
			require.ErrorIs(t, err, kernels.ErrIndex)
			return
		}
		require.NoError(t, err)
		require.Equal(t, string(g.given), string(bytesOf(t, d, in)), "a buffer that is only read was changed")
		mem := bytesOf(t, d, bufs[arena])
		for _, m := range g.made {
			got := decode(m.Type, mem[m.Off:m.Off+m.Len])
			at := firstOther(got.V, m.V)
			require.Negative(t, at, "at %v: %v, alone %v: %v", m.Place, got.V, m.V, g.calls)
		}
	}
}

// firstOther is the first position where two lists differ, NaN being like NaN, or −1.
func firstOther(a, b []float64) int {
	for k := range a {
		if a[k] != b[k] && (a[k] == a[k] || b[k] == b[k]) {
			return k
		}
	}
	return -1
}

// draw adds a call that fits. The error is that of the instruction alone.
func (g *routine) draw(t testing.TB) error {
	for {
		i, in := Case(g.Rand, g.families[g.IntN(len(g.families))])
		out, err := i.Infer(types(in))
		require.NoError(t, err)
		c := kernels.Call{Instr: i, In: types(in)}
		for k := range in {
			var p kernels.Place
			p, in[k] = g.place(in[k])
			c.Ins = append(c.Ins, p)
		}
		if c.Outs = g.room(i, c, out); c.Outs == nil {
			continue
		}
		g.calls = append(g.calls, c)
		got, err := RunOn(t, g.d, i, out, in)
		if err != nil {
			return err
		}
		for k, p := range c.Outs {
			g.made = slices.DeleteFunc(g.made, func(m made) bool { return share(m.Place, p) })
			g.made = append(g.made, made{p, got[k]})
		}
		return nil
	}
}

// place puts an operand among what is given, or takes another of its size instead that an earlier
// call made.
func (g *routine) place(x Tensor) (kernels.Place, Tensor) {
	n := x.Bytes()
	for range g.IntN(4) * min(1, len(g.made)) {
		if m := g.made[g.IntN(len(g.made))]; x.Dtype.IsFloat() && m.Dtype == x.Dtype && m.Len >= n {
			return kernels.Place{Buf: arena, Off: m.Off, Len: n}, Tensor{x.Type, m.V[:len(x.V)]}
		}
	}
	p := kernels.Place{Off: len(g.given), Len: n}
	g.given = append(g.given, x.encode()...)
	g.given = append(g.given, make([]byte, -len(g.given)&(kernels.PlaceAlign-1))...)
	return p, x
}

// room finds places for results, sometimes over an operand; nil where it finds none.
func (g *routine) room(i kernels.Instr, c kernels.Call, out []kernels.Type) []kernels.Place {
	ps := make([]kernels.Place, 0, len(out))
	for n, o := range out {
		for try := 0; len(ps) == n; try++ {
			if try == 50 || o.Bytes() > g.size {
				return nil
			}
			p := kernels.Place{Buf: arena, Off: g.IntN((g.size-o.Bytes())/kernels.PlaceAlign+1) * kernels.PlaceAlign, Len: o.Bytes()}
			if m := g.IntN(len(c.Ins) + 1); m < len(c.Ins) && c.Ins[m].Buf == arena && kernels.Overwrites(i, c.In, n, m) {
				p = c.Ins[m]
			}
			free := !slices.ContainsFunc(ps, func(q kernels.Place) bool { return share(p, q) })
			for m, q := range c.Ins {
				free = free && (p == q && kernels.Overwrites(i, c.In, n, m) || !share(p, q))
			}
			if free {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

// share says whether two places have a byte in common, by going through the bytes.
func share(p, q kernels.Place) bool {
	for k := range p.Len {
		if p.Buf == q.Buf && p.Off+k >= q.Off && p.Off+k < q.Off+q.Len {
			return true
		}
	}
	return false
}

// checkPlaces breaks a good call in every way.
func checkPlaces(t *testing.T, d device.Device) {
	b, err := backend.For(d)
	require.NoError(t, err)
	f := func(s ...int) kernels.Type { return kernels.Type{Dtype: device.Float32, Shape: s} }
	at := func(buf, off, n int) kernels.Place { return kernels.Place{Buf: buf, Off: off, Len: n} }
	type places = []kernels.Place
	add, sum := kernels.Binary{Fn: kernels.Add}, kernels.Reduce{Fn: kernels.Sum, Axes: []int{0}}
	step := kernels.Update{Rule: kernels.SGD, LR: 1, Momentum: 1, Step: 1}
	adam := kernels.Update{Rule: kernels.Adam, LR: 1, Beta1: 0.9, Beta2: 0.9, Eps: 1, Step: 1}
	good := kernels.Call{Instr: add, In: []kernels.Type{f(3, 4), f(4)}, Outs: places{at(1, 16, 48)}, Ins: places{at(1, 16, 48), at(0, 48, 16)}}
	sizes, written := []int{64, 64}, []bool{false, true}
	_, err = b.Assemble([]kernels.Call{good, good}, sizes, written)
	require.NoError(t, err)
	for why, bad := range map[string]kernels.Call{
		"expected 2 operands":             {Instr: add, In: good.In[:1], Outs: good.Outs, Ins: good.Ins[:1]},
		"the instruction is nil":          {In: good.In, Outs: good.Outs, Ins: good.Ins},
		"places for 1 and 1":              {Instr: add, In: good.In, Outs: good.Outs, Ins: good.Ins[:1]},
		"places for 0 and 2":              {Instr: add, In: good.In, Ins: good.Ins},
		"buffer 2 of 2":                   {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(2, 0, 16)}},
		"buffer -1 of 2":                  {Instr: add, In: good.In, Outs: places{at(-1, 16, 48)}, Ins: good.Ins},
		"operand 1 has 12 bytes":          {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(0, 48, 12)}},
		"result 0 has 44 bytes":           {Instr: add, In: good.In, Outs: places{at(1, 16, 44)}, Ins: good.Ins},
		"operand 1 lies at 64, beyond":    {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(0, 64, 16)}},
		"operand 1 lies at -8, beyond":    {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(0, -8, 16)}},
		"lies at 9223372036854775800":     {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(0, math.MaxInt-7, 16)}},
		"operand 1 lies at 40, which":     {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(0, 40, 16)}},
		"only read":                       {Instr: add, In: good.In, Outs: places{at(0, 0, 48)}, Ins: places{at(1, 16, 48), at(1, 0, 16)}},
		"result 0 must not overlap opera": {Instr: add, In: good.In, Outs: places{at(1, 0, 48)}, Ins: good.Ins},
		"overlap operand 1":               {Instr: add, In: good.In, Outs: good.Outs, Ins: places{at(1, 16, 48), at(1, 16, 16)}},
		"overlap operand 0":               {Instr: sum, In: []kernels.Type{f(1, 4)}, Outs: places{at(1, 0, 16)}, Ins: places{at(1, 0, 16)}},
		"must not overlap operand 3":      {Instr: adam, In: []kernels.Type{f(4), f(4), f(4), f(4)}, Outs: places{at(1, 0, 16), at(1, 16, 16), at(1, 32, 16)}, Ins: places{at(0, 0, 16), at(0, 0, 16), at(0, 0, 16), at(1, 16, 16)}},
		"result 1 overlaps another":       {Instr: step, In: []kernels.Type{f(4), f(4), f(4)}, Outs: places{at(1, 0, 16), at(1, 0, 16)}, Ins: places{at(0, 0, 16), at(0, 0, 16), at(0, 0, 16)}},
	} {
		_, err := b.Assemble([]kernels.Call{good, bad}, sizes, written)
		var call *kernels.CallError
		require.ErrorAs(t, err, &call, why)
		require.Equal(t, 1, call.At)
		require.ErrorIs(t, err, kernels.ErrOperands)
		require.ErrorContains(t, err, why)
	}
	_, err = b.Assemble([]kernels.Call{good}, sizes, written[:1])
	require.ErrorIs(t, err, kernels.ErrOperands)
	_, err = b.Assemble([]kernels.Call{good}, []int{64, -1}, written)
	require.ErrorIs(t, err, kernels.ErrOperands)
}

// checkRoutineBuffers runs a good routine on buffers that do not fit.
func checkRoutineBuffers(t *testing.T, d device.Device) {
	b, err := backend.For(d)
	require.NoError(t, err)
	x, none := kernels.Type{Dtype: device.Float32, Shape: device.Shape{4}}, kernels.Type{Dtype: device.Float32, Shape: device.Shape{0, 4}}
	run, err := b.Assemble([]kernels.Call{
		{Instr: kernels.Binary{Fn: kernels.Add}, In: []kernels.Type{x, x}, Outs: []kernels.Place{{Buf: 2, Len: 16}}, Ins: []kernels.Place{{Len: 16}, {Buf: 1, Len: 16}}},
		{Instr: kernels.Unary{}, In: []kernels.Type{none}, Outs: []kernels.Place{{Buf: 3}}, Ins: []kernels.Place{{Buf: 2, Off: 16}}},
	}, []int{16, 16, 16, 0}, []bool{false, false, true, true})
	require.NoError(t, err)
	one, out := upload(t, d, New(x.Dtype, x.Shape, 1)), garbage(t, d, 16)
	empty, long, gone, away := garbage(t, d, 0), garbage(t, d, 24), garbage(t, d, 16), upload(t, device.NewSim(device.SimConfig{Index: 98}), New(x.Dtype, x.Shape, 1))
	require.NoError(t, gone.Release())
	defer func() { release(t, []*device.Buffer{one, out, empty, long, away}) }()
	type bufs = []*device.Buffer
	for _, bad := range []struct {
		bufs
		err error
	}{
		{nil, kernels.ErrOperands}, {bufs{one, one, out}, kernels.ErrOperands}, {bufs{one, nil, out, empty}, kernels.ErrOperands},
		{bufs{one, long, out, empty}, kernels.ErrOperands}, {bufs{one, one, long, empty}, kernels.ErrOperands},
		{bufs{one, out, out, empty}, kernels.ErrOperands}, {bufs{out, one, out, empty}, kernels.ErrOperands},
		{bufs{one, gone, out, empty}, device.ErrReleased}, {bufs{one, one, gone, empty}, device.ErrReleased},
		{bufs{one, away, out, empty}, device.ErrElsewhere}, {bufs{one, one, away, empty}, device.ErrElsewhere},
	} {
		require.ErrorIs(t, run.Run(bad.bufs), bad.err)
	}
	require.NoError(t, run.Run(bufs{one, one, out, empty}), "a refused run must not break the routine")
	require.Equal(t, []float64{2, 2, 2, 2}, decode(x, bytesOf(t, d, out)).V)

	nothing, err := b.Assemble(nil, nil, nil)
	require.NoError(t, err)
	require.NoError(t, nothing.Run(nil))
}

// checkRoutineIndex has an id out of range in the second of three calls.
func checkRoutineIndex(t *testing.T, d device.Device) {
	b, err := backend.For(d)
	require.NoError(t, err)
	x, id := kernels.Type{Dtype: device.Float32, Shape: device.Shape{2}}, kernels.Type{Dtype: device.Int64, Shape: device.Shape{}}
	row := kernels.Type{Dtype: device.Float32, Shape: device.Shape{}}
	shift := kernels.Call{Instr: kernels.Unary{Fn: kernels.Shift, C: 1}, In: []kernels.Type{x}, Outs: []kernels.Place{{Buf: 1, Len: 8}}, Ins: []kernels.Place{{Buf: 1, Len: 8}}}
	pick := kernels.Call{Instr: kernels.Gather{}, In: []kernels.Type{x, id}, Outs: []kernels.Place{{Buf: 1, Off: 16, Len: row.Bytes()}}, Ins: []kernels.Place{{Buf: 1, Len: 8}, {Len: 8}}}
	run, err := b.Assemble([]kernels.Call{shift, pick, shift}, []int{8, 32}, []bool{false, true})
	require.NoError(t, err)
	ids, mem := upload(t, d, New(id.Dtype, id.Shape, 7)), upload(t, d, New(x.Dtype, device.Shape{8}, 0))
	defer release(t, []*device.Buffer{ids, mem})
	err = run.Run([]*device.Buffer{ids, mem})
	atOnce := err != nil
	if !atOnce {
		err = late(t, d)
	}
	var call *kernels.CallError
	var at *kernels.IndexError
	require.ErrorAs(t, err, &call)
	require.ErrorAs(t, err, &at)
	require.Equal(t, 1, call.At)
	require.Equal(t, kernels.Gather{}, call.Instr)
	require.Equal(t, int64(7), at.ID)
	if atOnce {
		require.Equal(t, []float64{1, 1}, decode(x, bytesOf(t, d, mem)[:8]).V, "the calls after it must not run")
	}
}
