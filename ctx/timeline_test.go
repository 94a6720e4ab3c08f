package ctx

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/ctx/passgraph"
)

// diary is an observer that keeps what it is told.
type diary struct {
	mu    sync.Mutex
	parts []*diaryPart
}

type diaryPart struct {
	mu   sync.Mutex
	did  []activity
	ends []error
}

type activity struct {
	a          Activity
	what       string
	start, end time.Time
}

type diaryKey struct{}

func (d *diary) Backward(c context.Context, _ PassID, _ BackwardID) (context.Context, Timeline) {
	p := &diaryPart{}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.parts = append(d.parts, p)
	return context.WithValue(c, diaryKey{}, p), p
}

func (p *diaryPart) Did(a Activity, what string, start, end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.did = append(p.did, activity{a, what, start, end})
}

func (p *diaryPart) End(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, err)
}

// sum is how long the activities took of a kind, which must follow each other without overlapping.
func (p *diaryPart) sum(t *testing.T, of Activity) (sum time.Duration) {
	t.Helper()
	for i, a := range p.did {
		require.False(t, a.end.Before(a.start))
		require.True(t, i == 0 || !a.start.Before(p.did[i-1].end), "one after the other")
		if a.a == of {
			sum += a.end.Sub(a.start)
		}
	}
	return sum
}

// watched is a world whose first two workers have diaries.
func watched(t *testing.T, n int) (*world, [2]*diary) {
	w, ds := newWorld(t, n), [2]*diary{{}, {}}
	for i, d := range ds {
		w.cts[i].observer = d
	}
	return w, ds
}

func TestATimelineSaysWhenAWorkerComputedAndWhenItWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ds := watched(t, 2)
		c, p := w.open(t, 0)
		defer p.Leave()
		w.hold(func(c context.Context, what string, _, _ WorkerID) error {
			if what == "gradients" {
				require.NotNil(t, c.Value(diaryKey{}), "gradients are sent under the observer's context")
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		loss := w.example(t, c)
		require.NoError(t, Backward(c, loss))
		root, there := ds[0].parts[0], ds[1].parts[0]
		require.Equal(t, 6*time.Second, root.sum(t, Waiting), "for its gradients to go there, and those to come back")
		require.Zero(t, root.sum(t, Computing), "which takes no time in this world")
		require.Zero(t, there.sum(t, Waiting), "nobody waits for the root's answer")
		require.Equal(t, []error{nil}, root.ends)
		require.Equal(t, []error{nil}, there.ends)
		require.Equal(t, "Sum(axes=all, keep=false), Mul", root.did[0].what)
		require.True(t, slices.ContainsFunc(there.did, func(a activity) bool { return a.a == Computing && strings.HasSuffix(a.what, "Add") }))
		for _, d := range ds {
			require.Len(t, d.parts, 1)
		}
	})
}

func TestATimelineEndsWithTheErrorOfItsBackward(t *testing.T) {
	w, ds := watched(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	loss := w.example(t, c)
	w.hold(refuse("gradients"))
	require.Error(t, Backward(c, loss))
	require.Len(t, ds[0].parts, 1)
	require.Len(t, ds[0].parts[0].ends, 1)
	var f *Failure
	require.True(t, errors.As(ds[0].parts[0].ends[0], &f))
}

func TestATimelineNamesTheFirstAndTheLastOfManyFunctions(t *testing.T) {
	w, ds := watched(t, 2)
	c, p := w.open(t, 0)
	defer p.Leave()
	x := autodiff.Tanh(Own(c, param(1, 2)))
	for range 5 {
		x = autodiff.Neg(x)
	}
	require.NoError(t, Backward(c, autodiff.Sum(x)))
	require.Equal(t, "Sum(axes=all, keep=false) … Tanh (7 in all)", ds[0].parts[0].did[0].what)
}

func TestAnObservedPassIsTimedAndAnotherIsNot(t *testing.T) {
	w, _ := watched(t, 3)
	for _, at := range []int{0, 2} {
		c, p := w.open(t, at)
		x := Own(c, param(1, 2))
		loss := autodiff.Sum(autodiff.Tanh(w.call1(t, c, 1, add, x, x)))
		require.NoError(t, Backward(c, loss))
		g, err := Graph(c)
		require.NoError(t, err)
		for _, part := range g.Workers {
			for _, n := range part.Nodes {
				timed := part.Rank != 2 && n.Kind == passgraph.Function
				require.Equal(t, timed, n.Forward > 0, "%s of worker %d, forward %v", n.Name, part.Rank, n.Forward)
				require.Equal(t, timed, n.Backward > 0, "%s of worker %d, backward %v", n.Name, part.Rank, n.Backward)
			}
		}
		p.Leave()
	}
}
