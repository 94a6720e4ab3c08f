package tensors

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/ctx"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/internal/soak"
)

func TestTheGradientOfASumIsTheSumOfGradientsOfAllLosses(t *testing.T) {
	w := newWorld(t, 3)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		x := parameter(1, 2, float64(r))
		y := AllReduce(c, gs[r], x, collective.Sum)
		if err := ctx.Backward(c, autodiff.Sum(autodiff.Scale(y, float64(r+1)))); err != nil {
			return err
		}
		got, err := gradientOf(c, x)
		if err == nil && fmt.Sprint(got) != "[6 6 6]" {
			err = fmt.Errorf("the gradient is %v", got)
		}
		return err
	})
}

func TestAnUnusedResultNeitherHangsNorMovesAByte(t *testing.T) {
	const size = 3
	var sent counts
	w := &world{t, rpctest.World(t, sent.net(), size)}
	a, b := w.group("a"), w.group("b")
	var want [2]int64
	for _, unused := range []int{0, 1, 2, 20} {
		before := make(chan struct{})
		var ready sync.WaitGroup
		ready.Add(size)
		var messages, bytes int64
		go func() {
			ready.Wait()
			messages, bytes = sent.messages.Load(), sent.bytes.Load()
			close(before)
		}()
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(make([]float64, 5000)...)
			y := AllReduce(c, a[r], x, collective.Sum)
			for range unused { // each depends on the one before
				y = AllReduce(c, a[r], y, collective.Max)
			}
			own, z := parameter(1, 2), AllGather(c, b[r], y, 0)
			if err := z.Err(); err != nil {
				return err
			}
			ready.Done()
			<-before
			return ctx.Backward(c, autodiff.Sum(autodiff.Mul(own, own)))
		})
		messages, bytes = sent.messages.Load()-messages, sent.bytes.Load()-bytes
		require.LessOrEqual(t, messages, int64(2*2*size*(size-1)), "what is reached, and later what is decided of group b")
		require.Less(t, bytes, int64(20000), "%d unused", unused)
		if unused == 0 {
			want = [2]int64{messages, bytes}
		}
		require.Equal(t, want[0], messages, "%d unused", unused)
	}
}

func TestMembersMayReachOperationsInAnyOrder(t *testing.T) {
	const size, ops = 3, 12
	w := newWorld(t, size)
	gs := w.group("g")
	for i := range soak.Cases(20) {
		w.eachPass(func(c context.Context, r int) error {
			x := parameter(1, 1)
			var ys []*autodiff.Tensor
			for range ops {
				ys = append(ys, AllReduce(c, gs[r], x, collective.Sum))
			}
			l := autodiff.Scale(x, 0)
			for _, k := range rand.New(rand.NewPCG(uint64(r), uint64(i))).Perm(ops) { // the last one is reached first
				l = autodiff.Scale(autodiff.Add(l, ys[k]), 0.5)
			}
			if err := ctx.Backward(c, autodiff.Sum(l)); err != nil {
				return err
			}
			got, err := gradientOf(c, x)
			if want := size * (1 - math.Pow(0.5, ops)); err == nil && math.Abs(got[0]-want) > 1e-12 {
				err = fmt.Errorf("the gradient is %v; expected %v", got, want)
			}
			return err
		})
	}
}

func TestAPassesGraphShowsItsGroupsOperationsWithTheirLinesAndTimes(t *testing.T) {
	w := newWorld(t, 2)
	gs := w.group("g")
	w.eachPass(func(c context.Context, r int) error {
		l := autodiff.Sum(AllReduce(c, gs[r], AllGather(c, gs[r], parameter(1, 2), 0), collective.Sum))
		if err := ctx.Backward(c, l); err != nil {
			return err
		}
		g, err := ctx.Graph(c)
		if err != nil {
			return err
		}
		var names []string
		for _, n := range g.Workers[0].Nodes {
			if names = append(names, n.Name); n.Name != "" && !strings.HasPrefix(n.Site, "passes_test.go:") {
				return fmt.Errorf("%s was called at %q", n.Name, n.Site)
			}
		}
		if want := []string{"", "AllGather along axis 0", "AllReduce Sum"}; len(names) != 4 || !slices.Equal(names[:3], want) {
			return fmt.Errorf("the graph shows %q", names)
		}
		return nil
	})
}
