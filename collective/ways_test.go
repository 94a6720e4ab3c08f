package collective

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/rpctest"
)

// played is a way that adds up float32 by telling all members' numbers.
type played struct {
	name  string
	g     *Group
	takes bool
	fails error
}

func (p *played) Name() string { return p.name }

func (p *played) Takes(op Op, d device.Dtype, _ []*device.Buffer) bool {
	return p.takes && op == Sum && d == device.Float32
}

func (p *played) Reduce(c context.Context, in *Compound, _ Op, _ device.Dtype, bufs []*device.Buffer) error {
	if p.fails != nil {
		return p.fails
	}
	mem, err := contents(bufs[0])
	if err != nil {
		return err
	}
	all, err := Agree(in.Part(c), p.g, device.As[float32](mem))
	if err != nil {
		return err
	}
	x := device.As[float32](mem)
	clear(x)
	for _, of := range all {
		for i, v := range of {
			x[i] += v
		}
	}
	return bufs[0].Device().Upload(bufs[0], 0, mem)
}

// summed adds up 1 and the rank on a member.
func summed(g *Group, dev device.Device, op Op) ([]float32, error) {
	b, err := bufferOf(dev, device.Bytes([]float32{1, float32(g.Rank())}))
	if err != nil {
		return nil, err
	}
	defer b.Release() //nolint:errcheck // ours
	if _, err := g.AllReduceBuffers(context.Background(), op, device.Float32, b).Wait(context.Background()); err != nil {
		return nil, err
	}
	got, err := contents(b)
	return device.As[float32](got), err
}

// result is AllReduced of 1 and the rank on a member, and where it lies.
func result(g *Group, dev device.Device, op Op) ([]float32, device.Device, error) {
	x, err := bufferOf(dev, device.Bytes([]float32{1, float32(g.Rank())}))
	if err != nil {
		return nil, nil, err
	}
	defer x.Release() //nolint:errcheck // ours
	y, err := g.AllReduced(context.Background(), op, device.Float32, x)
	if err != nil {
		return nil, nil, err
	}
	defer y.Release() //nolint:errcheck // ours
	got, err := contents(y)
	was, again := contents(x)
	if v := device.As[float32](was); err == nil && (v[0] != 1 || v[1] != float32(g.Rank())) {
		err = fmt.Errorf("the buffer has become %v", v)
	}
	return device.As[float32](got), y.Device(), errors.Join(err, again)
}

func TestANewBufferLiesWhereAWayHasMadeItOrOnTheHost(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	sims := make([]device.Device, len(gs))
	for r, g := range gs {
		g.Offer(&played{name: "way", g: g, takes: true})
		sims[r] = device.NewSim(device.SimConfig{Index: r})
	}
	for i, want := range []string{"way", "host", "host"} {
		each(t, gs, func(r int) error {
			dev, op := sims[r], Sum
			if i == 1 && r == 1 { // one member's lies on the host, which has all go there
				dev = device.Host()
			}
			if i == 2 {
				op = Prod
			}
			x, at, err := result(gs[r], dev, op)
			if err != nil {
				return err
			}
			if last := float32([]int{3, 3, 0}[i]); x[0] != float32([]int{3, 3, 1}[i]) || x[1] != last {
				return fmt.Errorf("the result is %v", x)
			}
			if (at == sims[r]) != (want == "way") || want == "host" && at != device.Host() {
				return fmt.Errorf("it lies on %v", at.ID())
			}
			if way, _ := wayOf(gs[r]); way != want {
				return fmt.Errorf("it went by %s", way)
			}
			return nil
		})
	}
	for r, err := range attempt(gs, func(r int) error { _, _, err := result(gs[r], sims[r], []Op{Sum, Max, Sum}[r]); return err }) {
		require.ErrorIs(t, err, ErrMismatch, "rank %d", r)
	}
}

// wayOf is by what way a member's last buffers went, and how many operations are counted by it.
func wayOf(g *Group) (way string, done uint64) {
	for _, e := range g.Trace() {
		if e.Way != "" {
			way = e.Way
		}
	}
	for _, t := range g.status().Totals {
		if t.Operation == "AllReduce by "+way {
			done = t.Done
		}
	}
	return way, done
}

func TestBuffersGoTheFirstWayThatAllMembersTakeAndTheTraceTellsWhich(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	ways := make([][3]*played, len(gs))
	for r, g := range gs {
		for k := range ways[r] {
			ways[r][k] = &played{name: fmt.Sprint("way ", k), g: g, takes: true}
			g.Offer(ways[r][k])
		}
	}
	check := func(op Op, want string, done uint64) {
		t.Helper()
		each(t, gs, func(r int) error {
			x, err := summed(gs[r], device.Host(), op)
			if err == nil && (x[0] != 3 || x[1] != 3) && op == Sum {
				err = fmt.Errorf("the sums are %v", x)
			}
			return err
		})
		for _, g := range gs {
			way, n := wayOf(g)
			require.Equal(t, want, way)
			require.Equal(t, done, n)
		}
	}
	check(Sum, "way 0", 1)
	ways[1][0].takes = false
	check(Sum, "way 1", 1)
	ways[2][1].takes = false
	check(Sum, "way 2", 1)
	ways[0][2].takes = false
	check(Sum, "host", 1)
	check(Prod, "host", 2)
}

func TestAWayThatFailsOnAMemberFailsOnAllAndTheGroupGoesOn(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 3), "g")
	broken := errors.New("it is broken")
	for r, g := range gs {
		w := &played{name: "way", g: g, takes: true}
		if r == 1 {
			w.fails = broken
		}
		g.Offer(w)
	}
	for r, err := range attempt(gs, func(r int) error { _, err := summed(gs[r], device.Host(), Sum); return err }) {
		if r == 1 {
			require.ErrorIs(t, err, broken)
		} else {
			require.ErrorIs(t, err, ErrAborted)
			require.ErrorContains(t, err, "it is broken")
		}
	}
	each(t, gs, func(r int) error { return gs[r].Barrier(t.Context()) })
}

func TestAMemberThatWasOfferedNoWayIsNamedWithItsCall(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	gs[0].Offer(&played{name: "way", g: gs[0], takes: true})
	for r, err := range attempt(gs, func(r int) error { _, err := summed(gs[r], device.Host(), Sum); return err }) {
		require.ErrorIs(t, err, ErrMismatch, "rank %d", r)
		require.ErrorContains(t, err, "ways_test.go:")
	}
	for r, err := range attempt(gs, func(r int) error { _, _, err := result(gs[r], device.Host(), Sum); return err }) {
		require.ErrorIs(t, err, ErrMismatch, "rank %d", r)
		require.ErrorContains(t, err, "one buffer of 2")
	}
}

// spoiled is memory of which what was written is known to be wrong.
type spoiled struct {
	device.Memory
	err error
}

func (s spoiled) Take(int) (uintptr, error)              { return 256, nil }
func (s spoiled) Give(uintptr, int)                      {}
func (s spoiled) Upload(uintptr, []byte) error           { return nil }
func (s spoiled) Download([]byte, uintptr) error         { return nil }
func (s spoiled) Close() error                           { return nil }
func (s spoiled) Check(...uintptr) (func() error, error) { return func() error { return s.err }, nil }

func TestBuffersWhoseWorkHasFailedAreNotReducedAndTheErrorIsTold(t *testing.T) {
	gs := groups(t, rpctest.World(t, rpctest.Net(), 2), "g")
	wrong := errors.New("an index was out of range")
	for r, err := range attempt(gs, func(r int) error {
		gs[r].Offer(&played{name: "way", g: gs[r], takes: true, fails: errors.New("it was called")})
		dev := device.Device(device.Host())
		if r == 1 {
			a := device.Over(device.CUDA(0), spoiled{err: wrong}, 0)
			defer a.Close() //nolint:errcheck // it cannot fail
			dev = a
		}
		_, err := summed(gs[r], dev, Sum)
		return err
	}) {
		require.ErrorContains(t, err, wrong.Error(), "rank %d", r)
		require.Equal(t, r == 1, errors.Is(err, wrong))
	}
}
