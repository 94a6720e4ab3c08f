package collective

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/secret/secrettest"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/internal/thresholds"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// drawn are the arrays of all ranks, of numbers up to 100. Nobody else has them yet, and the race
// detector would take most of the time.
//
//go:norace
func drawn[E Element](r *rand.Rand, size, n int) [][]E {
	all, state := make([][]E, size), r.Uint64()
	for k := range all {
		row := make([]E, n)
		for i := range row {
			state = state*6364136223846793005 + 1442695040888963407
			row[i] = E(float64(int64(state)>>11) * (100.0 / (1 << 52)))
		}
		all[k] = row
	}
	return all
}

// defined is the dumb definition: gather all, and go in the order of ranks. It reads what nobody
// writes.
//
//go:norace
func defined[E Element](op Op, in [][]E) []E {
	out := make([]E, len(in[0]))
	scaled := func(x E) E { return E(op.of.Factor) * x } // a function's result is rounded
	for i := range out {
		acc := in[0][i]
		if op == half {
			acc = scaled(acc)
		}
		for _, x := range in[1:] {
			switch op {
			case Sum, Mean:
				acc += x[i]
			case Prod:
				acc *= x[i]
			case Min:
				acc = min(acc, x[i])
			case Max:
				acc = max(acc, x[i])
			case And:
				acc = E(int64(acc) & int64(x[i]))
			case Or:
				acc = E(int64(acc) | int64(x[i]))
			case Xor:
				acc = E(int64(acc) ^ int64(x[i]))
			case half:
				s := scaled(x[i])
				acc += s
			}
		}
		if op == Mean {
			acc /= E(len(in))
		}
		out[i] = acc
	}
	return out
}

var half = Scaled(0.3)

func clones[E Element](in [][]E) [][]E {
	out := make([][]E, len(in))
	for r := range in {
		out[r] = append(make([]E, 0, len(in[r])), in[r]...)
	}
	return out
}

// check is one operation on a group, with the arrays of all ranks, against its definition, bit for
// bit.
type check[E Element] struct {
	t    *testing.T
	gs   []*Group
	op   Op
	root int
	in   [][]E
	what string
}

func (k check[E]) same(want, got []E) {
	k.t.Helper()
	require.Equal(k.t, device.Bytes(want), device.Bytes(got), k.what)
}

func (k check[E]) run(kind plan.Kind) {
	t, gs, c, size, n := k.t, k.gs, k.t.Context(), len(k.gs), len(k.in[0])
	in, out, parts, lists := k.in, clones(k.in), make([][]E, size), make([][][]E, size)
	var want []E
	if kind.Sums() {
		want = defined(k.op, in)
	}
	switch kind {
	case plan.AllReduce:
		each(t, gs, func(r int) error { return AllReduce(c, gs[r], out[r], k.op) })
		for r := range gs {
			k.same(want, out[r])
		}
	case plan.Reduce:
		each(t, gs, func(r int) error { return Reduce(c, gs[r], out[r], k.op, k.root) })
		k.same(want, out[k.root])
	case plan.ReduceScatter:
		each(t, gs, func(r int) (err error) {
			parts[r], err = ReduceScatter(c, gs[r], out[r], k.op)
			return err
		})
		for r := range gs {
			lo, hi := Share(n, size, r)
			k.same(want[lo:hi], parts[r])
			k.same(in[r], out[r]) // inputs are not written
		}
	case plan.Broadcast:
		each(t, gs, func(r int) error { return Broadcast(c, gs[r], out[r], k.root) })
		for r := range gs {
			k.same(in[k.root], out[r])
		}
	case plan.Scatter:
		each(t, gs, func(r int) (err error) {
			parts[r], err = Scatter(c, gs[r], out[r], k.root)
			return err
		})
		for r := range gs {
			lo, hi := Share(n, size, r)
			k.same(in[k.root][lo:hi], parts[r])
		}
	case plan.AllGather, plan.Gather:
		for r := range in { // of unequal lengths
			in[r] = in[r][:n*(r+1)/size]
		}
		each(t, gs, func(r int) (err error) {
			if kind == plan.Gather {
				lists[r], err = Gather(c, gs[r], in[r], k.root)
			} else {
				lists[r], err = AllGather(c, gs[r], in[r])
			}
			return err
		})
		for r := range gs {
			if kind == plan.Gather && r != k.root {
				require.Empty(t, lists[r], k.what)
				continue
			}
			for from := range gs {
				k.same(in[from], lists[r][from])
			}
		}
	case plan.AllToAll:
		each(t, gs, func(r int) (err error) {
			var x [][]E
			for to := range size {
				x = append(x, in[r][:n*to/size])
			}
			lists[r], err = AllToAll(c, gs[r], x)
			return err
		})
		for r := range gs {
			for from := range size {
				k.same(in[from][:n*r/size], lists[r][from])
			}
		}
	case plan.Barrier:
		each(t, gs, func(r int) error { return gs[r].Barrier(c) })
	}
}

// one is a case of a deck: everything but the lengths.
type one struct {
	kind  plan.Kind
	dtype device.Dtype
	op    Op
	root  int
}

// deck is every operation with every dtype, op and root of a group of that size, once.
func deck(size int) (all []one) {
	floats, ints := []Op{Sum, Mean, Prod, Min, Max, half}, []Op{Sum, Prod, Min, Max, And, Or, Xor}
	for kind := plan.AllReduce; kind.Known(); kind++ {
		roots := 1
		if kind.Rooted() {
			roots = size
		}
		for _, d := range []device.Dtype{
			device.Float32, device.Float64, device.Int32, device.Int64,
		} {
			ops := ints
			if d.IsFloat() {
				ops = floats
			}
			if !kind.Sums() {
				ops = ops[:1]
			}
			for _, op := range ops {
				for root := range roots {
					all = append(all, one{kind, d, op, root})
				}
			}
		}
	}
	return all
}

func play[E Element](t *testing.T, gs []*Group, r *rand.Rand, n int, o one) {
	what := fmt.Sprintf("%v %v of %d %v, p=%d, root %d", o.kind, o.op, n, o.dtype, len(gs), o.root)
	check[E]{t, gs, o.op, o.root, drawn[E](r, len(gs), n), what}.run(o.kind)
}

// around is a length at a threshold: of a whole array, of a piece, or of all arrays together. What
// is large is for two members, or for all together.
func around(sizes *thresholds.Drawer, size int, d device.Dtype) int {
	const large = 1 << 16
	threshold, side := sizes.Next()
	n := threshold.Elems(d.Size(), side)
	switch {
	case n > large && size != 2:
		return (n-side)/size + side
	case n*size <= large:
		return n * size
	}
	return n
}

// draw plays some cases of the deck, with lengths of all sorts.
func draw(t *testing.T, gs []*Group, seed uint64, cases int, sizes *thresholds.Drawer) {
	r := rand.New(rand.NewPCG(uint64(len(gs)), seed))
	var left []one
	for range cases {
		if len(left) == 0 {
			left = deck(len(gs))
			r.Shuffle(len(left), func(i, k int) { left[i], left[k] = left[k], left[i] })
		}
		o := left[0]
		left = left[1:]
		n := []int{0, 1, 15, 16, 17, 100, 1000, 5000}[r.IntN(8)]
		if r.IntN(10) == 0 {
			n = around(sizes, len(gs), o.dtype)
		}
		switch o.dtype {
		case device.Float32:
			play[float32](t, gs, r, n, o)
		case device.Float64:
			play[float64](t, gs, r, n, o)
		case device.Int32:
			play[int32](t, gs, r, n, o)
		case device.Int64:
			play[int64](t, gs, r, n, o)
		}
	}
}

// onLane joins workers that use a lane for large tensors.
func onLane(t *testing.T, size int, lane string) []*rpc.Worker {
	return rpctest.WorldWith(t, rpctest.Net(), size, func(_ int, cfg *rpc.Config) {
		cfg.Network, cfg.Listen = nil, ""
		cfg.Lanes, cfg.Token = []string{lane}, secrettest.Token("job")
	})
}

// lanes are the lanes that groups on the host's memory use.
func lanes() (all []string) {
	for _, lane := range transport.LaneNames() {
		if lane != transport.LaneCUDA {
			all = append(all, lane)
		}
	}
	return all
}

// Each lane has its part of each deck. With `make soak` every case of every deck is played on each.
func TestEveryOperationIsItsDefinitionBitForBitOnEveryLane(t *testing.T) {
	sizes := thresholds.Around(thresholds.Groups)
	for k, lane := range lanes() {
		t.Run("lane="+lane, func(t *testing.T) {
			ws := onLane(t, 9, lane)
			for size := 1; size <= len(ws); size++ {
				gs := groups(t, ws[:size], "g")
				for _, m := range gs[0].Members() {
					require.Equal(t, map[bool]string{true: lane}[m.Rank > 0], m.Lane)
				}
				draw(t, gs, uint64(k), soak.Cases(16), sizes)
			}
		})
	}
	require.Empty(t, sizes.Missing())
}

// With `make soak` every case of every deck is played here, too.
func TestGroupsOfMoreThanNineMembersDoEverythingAsSmallerOnes(t *testing.T) {
	sizes := []int{10, 17}
	if soak.Cases(1) > 1 {
		sizes = append(sizes, 33)
	}
	for _, size := range sizes {
		t.Run(fmt.Sprintf("p=%d", size), func(t *testing.T) {
			gs := groups(t, rpctest.World(t, rpctest.Net(), size), "g")
			draw(t, gs, 9, soak.Cases(15), thresholds.Around(thresholds.Groups))
		})
	}
}

// What is drawn with the tag soak is more than a deck.
func TestTheSoakPlaysEveryOperationDtypeOpAndRoot(t *testing.T) {
	if soak.Cases(16) >= 1600 {
		require.Greater(t, soak.Cases(16), len(deck(9)))
		require.Greater(t, soak.Cases(15), len(deck(33)))
	}
	seen := map[one]bool{}
	for _, o := range deck(9) {
		require.False(t, seen[o], "%+v is twice in the deck", o)
		seen[o] = true
	}
	require.Len(t, seen, 2*26+9*26+3*9*4+2*4+4) // sums to all, to a root; three with a root; two without; barriers
}

func rnd(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
