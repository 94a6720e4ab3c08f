//go:build netns && linux

package netns

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/parallel/outer"
)

// paced is inner steps that take a time, as those on a device do while the host's processor has
// little to do. Each tenth moves all parameters.
type paced struct {
	Steps  int
	Pace   time.Duration
	Elems  int
	Alone  bool // in a group of its own: all is the same but for the network
	Config outer.Config
}

// pacing is what they took.
type pacing struct {
	Took     time.Duration
	Totals   outer.Totals
	Exchange time.Duration // the last one
	First    float32       // an element at the end
}

func (r *resident) paced(c context.Context, in paced) (out pacing, err error) {
	c = r.m.Context(c)
	p := autodiff.New(make([]float32, in.Elems)).RequireGrad()
	var members []string // all
	if in.Alone {
		members = []string{r.m.Worker.Name()}
	}
	g, err := collective.Open(c, r.m.Worker, "outer", members...)
	if err != nil {
		return out, err
	}
	loop, err := outer.New(c, g, []*autodiff.Tensor{p}, in.Config)
	if err != nil {
		return out, errors.Join(err, g.Close())
	}
	defer func() { err = errors.Join(err, loop.Close(), g.Close()) }()
	began := time.Now()
	for step := range in.Steps {
		if step%10 == 0 {
			if err := move(p); err != nil {
				return out, err
			}
		}
		time.Sleep(in.Pace)
		if err := loop.Step(c); err != nil {
			return out, err
		}
	}
	out.Took = time.Since(began)
	out.Totals, out.Exchange = loop.Total(), loop.Last().Took
	err = loop.Finish(c)
	x, e := autodiff.Values[float32](p)
	if e == nil {
		out.First = x[1]
	}
	return out, errors.Join(err, e)
}

// move adds something to all elements.
func move(p *autodiff.Tensor) error {
	x, err := autodiff.Values[float32](p)
	if err != nil {
		return err
	}
	for i := range x {
		x[i] += float32(i%7) / 100
	}
	return autodiff.Assign([]*autodiff.Tensor{p}, []*autodiff.Tensor{autodiff.New(x)})
}

// TestExchangesOverASlowPathCostAlmostNoTime has three hosts with a million parameters each train
// over links of 100 ms one way and 100 Mbit/s, and alone. The median of five turns counts: the
// hosts share this machine's processors with whatever else is running.
func TestExchangesOverASlowPathCostAlmostNoTime(t *testing.T) {
	l := found(t, Path{Delay: 100 * time.Millisecond, Rate: 100e6})
	in := paced{Steps: 150, Pace: 40 * time.Millisecond, Elems: 1 << 20, Config: outer.Config{Every: 50, Delay: 45, Mix: 0.5, Wire: outer.Int8}}
	measure := func(exchanges bool) (took time.Duration, last pacing) {
		in.Alone = !exchanges
		var outs [hosts]pacing
		l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "paced", in, &outs[i]) })
		for _, out := range outs {
			took = max(took, out.Took)
			require.Equal(t, outs[0].First, out.First, "all have the same parameters")
		}
		return took, outs[0]
	}
	var ratios []float64
	for range 5 {
		alone, _ := measure(false)
		together, out := measure(true)
		ratios = append(ratios, together.Seconds()/alone.Seconds())
		each := float64(out.Totals.Bytes) / float64(out.Totals.Exchanges) / 1e6
		t.Logf("%d steps alone %.2f s, with %d exchanges of %.1f MB, each of some %.2f s, %.2f s (%.2f s waited for): %.4f times as long",
			in.Steps, alone.Seconds(), out.Totals.Exchanges, each, out.Exchange.Seconds(), together.Seconds(), out.Totals.Waited.Seconds(), ratios[len(ratios)-1])
	}
	in.Config.Delay = 0
	alone, _ := measure(false)
	together, _ := measure(true)
	slices.Sort(ratios)
	t.Logf("the median is %.4f; without Delay it is %.2f; %+v", ratios[2], together.Seconds()/alone.Seconds(), l.Stats())
	require.LessOrEqual(t, ratios[2], 1.05)
	require.Greater(t, together.Seconds()/alone.Seconds(), 1.2, "the path is slow")
	l.all(t, func(i int) error { return l.hosts[i].Ask(t.Context(), "close", nil, nil) })
}
