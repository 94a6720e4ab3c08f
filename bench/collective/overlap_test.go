package collective

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/parallel"
	"github.com/weft-project/weft/transport/simnet"
)

const (
	rate   = 1e9                   // bytes a second of a link, in each direction
	chunk  = 32 << 10              // of the simulated network
	flight = 50 * time.Microsecond // of a chunk
	width  = 128                   // of the transformer
	blocks = 12
	pieces = 512 // kinds of tokens
)

// link has chunks leave one after the other.
type link struct {
	mu   sync.Mutex
	busy map[string]time.Time // until then, by direction
}

func (l *link) delay(from, to string, _ *rand.Rand) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	at := l.busy[from+" "+to]
	if at.Before(now) {
		at = now
	}
	at = at.Add(time.Duration(chunk / rate * 1e9))
	l.busy[from+" "+to] = at
	return at.Sub(now) + flight
}

// transformerSizes are the parameters of a transformer as GPT-2 is one, in elements.
func transformerSizes() (all []int) {
	all = []int{pieces * width, 64 * width} // the embeddings
	for range blocks {
		all = append(all, width, width, 3*width*width, 3*width, width*width, width, width, width, 4*width*width, 4*width, 4*width*width, width)
	}
	return append(all, width, width, width*pieces, pieces)
}

// backwardOf is a replica whose backward takes a given time for each element, from the last
// parameter to the first.
type backwardOf struct {
	*parallel.Replicas
	params []*autodiff.Tensor
	each   time.Duration // for 1024 elements
}

func newBackward(c context.Context, g *collective.Group) (*backwardOf, error) {
	b := &backwardOf{}
	for _, n := range transformerSizes() {
		p := autodiff.New(make([]float32, n)).RequireGrad()
		if _, err := p.OnAccumulated(func(_, _ *autodiff.Tensor) error { time.Sleep(b.each * time.Duration(n) / 1024); return nil }); err != nil {
			return nil, err
		}
		b.params = append(b.params, p)
	}
	var err error
	b.Replicas, err = parallel.Replicate(c, g, b.params, parallel.Config{})
	return b, err
}

func (b *backwardOf) step(c context.Context) error {
	owner := autodiff.NewArena("step")
	defer owner.Free()
	one := autodiff.New([]float32{1})
	if err := owner.Adopt(one); err != nil {
		return err
	}
	loss := autodiff.Reshape(one)
	for _, p := range b.params {
		loss = autodiff.Add(loss, autodiff.Sum(p))
	}
	_, err := b.Backward(c, loss, 1)
	return err
}

// TestMostOfTheExchangeIsHiddenByATransformersBackward tells, over simulated links of 1 GB/s and in
// their time, which share of the exchange a backward hides that takes as long as it.
func TestMostOfTheExchangeIsHiddenByATransformersBackward(t *testing.T) {
	for _, size := range []int{2, 4} {
		t.Run(fmt.Sprint(size, " ranks"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { hide(t, size) })
		})
	}
}

func hide(t *testing.T, size int) {
	l := link{busy: map[string]time.Time{}}
	net := simnet.New(simnet.Config{Delay: l.delay, Logger: slog.New(slog.DiscardHandler)})
	ws := rpctest.World(t, net, size)
	all, gs := make([]*backwardOf, size), make([]*collective.Group, size)
	each := func(fn func(r int) error) time.Duration {
		began := time.Now()
		for r, err := range rpctest.Attempt(size, fn) {
			require.NoError(t, err, "rank %d", r)
		}
		return time.Since(began)
	}
	each(func(r int) (err error) {
		if gs[r], err = collective.Open(t.Context(), ws[r], "bench"); err == nil {
			all[r], err = newBackward(t.Context(), gs[r])
		}
		return err
	})
	step := func() time.Duration { return each(func(r int) error { return all[r].step(t.Context()) }) }
	step() // nobody knows the order yet
	exchange := step()
	elements := 0
	for _, n := range transformerSizes() {
		elements += n
	}
	for _, b := range all {
		b.each = exchange * 1024 / time.Duration(elements)
	}
	backward := all[0].each * time.Duration(elements) / 1024
	whole := step()
	hidden := float64(backward+exchange-whole) / float64(exchange)
	t.Logf("%d ranks, %.1f MB of gradients: the exchange alone %v, the backward alone %v, both %v: %.0f %% is hidden",
		size, float64(4*elements)/1e6, exchange, backward, whole, 100*hidden)
	require.GreaterOrEqual(t, hidden, 0.8)
	each(func(r int) error { return gs[r].Close() })
}
