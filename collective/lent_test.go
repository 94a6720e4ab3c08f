package collective

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport"
)

// lender is a member that sums a buffer, which the others read where it lies.
type lender struct {
	g    *Group
	r    *rand.Rand
	buf  *device.Buffer
	torn int // how often it has overwritten the buffer after it failed
}

// sum fills the buffer and sums. One that fails overwrites its buffer at once where it is alone
// with it, and else leaves it to those who read, and takes another one.
func (l *lender) sum(c context.Context, n, value, want int) (err error) {
	if !l.buf.Exclusive() {
		if err = l.buf.Release(); err == nil {
			l.buf, err = device.Host().Alloc(4 * n)
		}
		if err != nil {
			return err
		}
	}
	mem, err := l.buf.Host()
	if err != nil {
		return err
	}
	x := device.As[int32](mem)
	for i := range x {
		x[i] = int32(value)
	}
	out, err := l.g.AllReduced(c, Sum, device.Int32, l.buf)
	if err != nil {
		if l.buf.Exclusive() {
			l.torn++
			for i := range x {
				x[i] = -1
			}
		}
		return err
	}
	defer out.Release() //nolint:errcheck // ours
	got, err := out.Host()
	if err != nil {
		return err
	}
	for i, v := range device.As[int32](got) {
		if v != int32(want) {
			return fmt.Errorf("element %d is %d; expected %d", i, v, want)
		}
	}
	return nil
}

func TestAnOwnerThatGivesUpWhileItsInputIsReadHarmsNobody(t *testing.T) {
	const size, n = 3, 1 << 18
	gs := groups(t, onLane(t, size, transport.LaneLocal), "g")
	lenders := make([]*lender, size)
	for r := range lenders {
		lenders[r] = &lender{g: gs[r], r: rnd(uint64(r)), buf: hostBuffer(t, make([]byte, 4*n))}
	}
	heard := func(g *Group) (n uint64) { // notes
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, t := range g.notes {
			n += t.got
		}
		return n
	}
	outcomes := map[bool]int{}
	for i := range soak.Cases(60) {
		victim := i % size
		c, cancel := context.WithCancel(t.Context())
		done, gone := make(chan struct{}), make(chan struct{})
		until := heard(gs[victim]) + uint64(i/size%6) // of four that come in a sum
		go func() {
			defer close(gone)
			defer cancel()
			for heard(gs[victim]) < until {
				select {
				case <-done:
					return
				default:
					runtime.Gosched()
				}
			}
		}()
		for r, err := range attempt(gs, func(r int) error {
			mine := t.Context()
			if r == victim {
				mine = c
			}
			return lenders[r].sum(mine, n, i+r, size*i+3)
		}) {
			outcomes[err == nil]++
			if err != nil && !errors.Is(err, ErrAborted) && !errors.Is(err, context.Canceled) {
				require.NoError(t, err, "case %d, rank %d", i, r)
			}
		}
		close(done)
		<-gone
	}
	torn := 0
	for _, l := range lenders {
		torn += l.torn
		require.NoError(t, l.buf.Release())
	}
	t.Log(outcomes, torn)
	require.Positive(t, outcomes[true])
	require.Positive(t, outcomes[false])
}
