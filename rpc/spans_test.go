package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/ctx/passgraph"
	"github.com/weft-project/weft/rpc/internal/wire"
	"github.com/weft-project/weft/rpc/trace"
)

// spans is a sink that keeps what it gets.
type spans struct {
	mu  sync.Mutex
	all []trace.Span
}

func (s *spans) Span(x trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, x)
}

// relay calls double on the worker that called.
var relay = Define("relay", func(c context.Context, n int) (int, error) { return double.Call(c, "worker0", n) })

func TestTheSpansOfNestedCallsFormATreeAcrossWorkers(t *testing.T) {
	sink := &spans{}
	ws := sim(t, 2, func(_ int, cfg *Config) { cfg.Functions, cfg.Trace = []Function{double, relay}, sink })
	require.NoError(t, ws[0].Pass(t.Context(), func(c context.Context) error {
		_, err := relay.Call(c, "worker1", 4)
		require.NoError(t, err)
		ref := double.Remote(c, "worker1", 4)
		_, err = ref.ToHere(c)
		require.NoError(t, err)
		ref.Release()
		_, err = Define("none", func(context.Context, int) (int, error) { return 0, nil }).Call(c, "worker1", 4)
		require.ErrorIs(t, err, ErrNotServed)
		return nil
	}))
	leaveAll(t, ws)
	type key struct{ worker, side, kind, function, outcome string }
	byKey, byID := map[key]trace.Span{}, map[trace.ID]trace.Span{}
	for _, s := range sink.all {
		byKey[key{s.Worker, s.Side.String(), s.Kind, s.Function, s.Outcome}] = s
		require.NotContains(t, byID, s.ID)
		byID[s.ID] = s
		require.False(t, s.End.Before(s.Start))
		require.NotZero(t, s.Pass)
	}
	require.Len(t, sink.all, 10)
	for _, k := range []key{
		{"worker1", "callee", "call", "relay", "ok"}, {"worker0", "callee", "call", "double", "ok"},
		{"worker1", "callee", "remote", "double", "ok"}, {"worker1", "callee", "fetch", "", "ok"}, {"worker1", "callee", "call", "none", "error"},
	} {
		callee, ok := byKey[k]
		require.True(t, ok, "%v", k)
		caller := byID[callee.Parent]
		require.Equal(t, callee.Peer, caller.Worker)
		require.Equal(t, trace.Caller, caller.Side)
		require.Equal(t, callee.Function, caller.Function)
		require.False(t, callee.Start.Before(caller.Start))
		if k.outcome == "ok" {
			require.NotZero(t, caller.Sent)
			require.NotZero(t, caller.Received)
		}
	}
	nested := byKey[key{"worker1", "caller", "call", "double", "ok"}]
	require.Equal(t, byKey[key{"worker1", "callee", "call", "relay", "ok"}].ID, nested.Parent)
}

func TestWorkersWriteTracesThatMergeIntoOneWithoutLooseEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spans")
	t.Setenv(TraceVariable, dir)
	ws := sim(t, 2, serve(double, relay))
	for range 5 {
		_, err := relay.Call(ws[0].Context(t.Context()), "worker1", 4)
		require.NoError(t, err)
	}
	leaveAll(t, ws)
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "a trace is its user's alone")
	var inputs []trace.Input
	for _, w := range ws {
		info, err := os.Stat(filepath.Join(dir, w.Name()+".json"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		b, err := os.ReadFile(filepath.Join(dir, w.Name()+".json"))
		require.NoError(t, err)
		inputs = append(inputs, trace.Input{Name: w.Name(), Reader: bytes.NewReader(b)})
	}
	var out bytes.Buffer
	m, err := trace.Merge(&out, inputs...)
	require.NoError(t, err)
	require.Equal(t, trace.Merged{Workers: 2, Spans: 20, Flows: 10}, m)
	var events []struct{ Ph, ID string }
	require.NoError(t, json.Unmarshal(out.Bytes(), &events))
	loose := map[string]int{}
	for _, e := range events {
		loose[e.ID] += map[string]int{"s": 1, "f": -1}[e.Ph]
	}
	for id, n := range loose {
		require.Zero(t, n, "flow %s", id)
	}
}

func TestAWorkerThatIsStartedAgainLeavesTheTraceOfItsFirstLifeAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(TraceVariable, dir)
	for _, restarts := range []string{"", "0", "2", "2", "not a number"} {
		t.Setenv("WEFT_RESTARTS", restarts)
		w, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Token: testToken})
		require.NoError(t, err)
		require.NoError(t, w.Leave(t.Context()))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "worker0.json"), filepath.Join(dir, "worker0.restart2.json")}, files)
}

func TestATraceThatCannotBeWrittenFailsTheJoin(t *testing.T) {
	file, open := filepath.Join(t.TempDir(), "file"), t.TempDir()
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Chmod(open, 0o777)) //nolint:gosec // others may plant anything in it
	for _, dir := range []string{file, open} {
		t.Setenv(TraceVariable, dir)
		_, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Token: testToken})
		require.ErrorContains(t, err, "$WEFT_TRACE")
		require.ErrorContains(t, err, dir)
	}
}

func TestATraceGoesIntoNoFileBehindALink(t *testing.T) {
	dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(victim, []byte("text"), 0o600))
	require.NoError(t, os.Symlink(victim, filepath.Join(dir, "worker0.json")))
	t.Setenv(TraceVariable, dir)
	_, err := Join(t.Context(), Config{Store: memory(t), WorldSize: 1, Token: testToken})
	require.ErrorContains(t, err, "$WEFT_TRACE")
	b, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "text", string(b))
}

func TestOnlyATracedCallHasASpanInItsHeader(t *testing.T) {
	h := wire.CallHeader{Function: "f", Ticket: 3}
	plain, err := h.Append(nil)
	require.NoError(t, err)
	require.Len(t, plain, 4)
	h.Span = 1<<63 | 5
	traced, err := h.Append(nil)
	require.NoError(t, err)
	require.Len(t, traced, len(plain)+8)
	var back wire.CallHeader
	require.NoError(t, back.Parse(traced))
	require.Equal(t, h.Span, back.Span)
	require.Error(t, (&wire.CallHeader{}).Parse(traced[:len(traced)-1]))
}

func TestTheSpansOfABackwardLieInThePartsOfItsWorkersAndFollowItsGradients(t *testing.T) {
	sink := &spans{}
	ws := sim(t, 2, func(_ int, cfg *Config) { cfg.Functions, cfg.Trace = []Function{addFn}, sink })
	g := exampleGraph(t, ws)
	leaveAll(t, ws)
	byID, kinds := map[trace.ID]trace.Span{}, map[string]int{}
	for _, s := range sink.all {
		byID[s.ID] = s
		kinds[s.Worker+" "+s.Side.String()+" "+s.Kind]++
	}
	for _, k := range []string{"worker0 local backward", "worker1 local backward"} {
		require.Equal(t, 1, kinds[k], k)
	}
	for _, k := range []string{"worker0 caller gradients", "worker1 callee gradients", "worker1 caller gradients", "worker0 callee gradients"} {
		require.Equal(t, 1, kinds[k], "one message each way: %s", k)
	}
	require.Positive(t, kinds["worker0 local compute"])
	for _, s := range sink.all {
		parent := byID[s.Parent]
		switch {
		case s.Kind == "gradients" && s.Side == trace.Callee:
			require.Equal(t, trace.Caller, parent.Side)
			require.Equal(t, s.Function, parent.Function)
			require.NotZero(t, s.Received)
			require.GreaterOrEqual(t, parent.Sent, int64(36))
			require.False(t, s.Start.Before(parent.Start))
		case s.Kind == "backward" && s.Worker == "worker1":
			require.Equal(t, "gradients", parent.Kind, "they began it")
			fallthrough
		case s.Kind == "compute", s.Kind == "wait", s.Kind == "gradients":
			require.Equal(t, s.Worker, parent.Worker)
			require.False(t, s.Start.Before(parent.Start))
			require.True(t, s.Kind == "gradients" || !s.End.After(parent.End), "nobody waits for the root's answer")
		}
		require.NotZero(t, s.Pass)
		require.Equal(t, "ok", s.Outcome)
		if s.Kind == "compute" || s.Kind == "wait" {
			require.Equal(t, s.End.Sub(s.Start).Nanoseconds(), s.End.UnixNano()-s.Start.UnixNano(), "they adjoin by the clock that is drawn")
		}
	}
	for _, w := range g.Workers {
		for _, n := range w.Nodes {
			require.Equal(t, n.Kind == passgraph.Function, n.Forward > 0 && n.Backward > 0, n.Name)
		}
	}
}
