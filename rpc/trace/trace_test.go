package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
)

// slice is a span as a reader of the file sees it, in microseconds from the trace's start, as
// float64.
type slice struct {
	name, span, parent string
	pid, tid           int
	start, end         float64
}

// from is when it began, in nanoseconds since 1970.
func (f file) from(s slice) int64 { return f.start + nanos(s.start) }

// file is what a reader finds in a trace.
type file struct {
	start     int64
	slices    []slice
	processes map[int]string
	starts    map[string]slice // flow → the slice it leaves
	ends      map[string]slice
}

// read parses a trace strictly, and checks what Perfetto relies on: known phases with their fields,
// names before use, flows inside slices, and slices of a thread that are apart or nested.
func read(t *testing.T, b []byte) file {
	t.Helper()
	var events []map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	require.NoError(t, d.Decode(&events), "%s", b)
	f := file{processes: map[int]string{}, starts: map[string]slice{}, ends: map[string]slice{}}
	if len(events) > 0 {
		require.Equal(t, "trace_start", events[0]["name"])
		require.Equal(t, "M", events[0]["ph"])
		var err error
		f.start, err = strconv.ParseInt(events[0]["args"].(map[string]any)["unix_ns"].(string), 10, 64)
		require.NoError(t, err)
		events = events[1:]
	}
	threads := map[[2]int]bool{}
	byThread := map[[2]int][]slice{}
	for _, e := range events {
		pid, tid := int(number(t, e["pid"])), int(number(t, e["tid"]))
		at := [2]int{pid, tid}
		if e["ph"] == "M" {
			name := e["args"].(map[string]any)["name"].(string)
			if e["name"] == "process_name" {
				require.NotContains(t, f.processes, pid)
				f.processes[pid] = name
			} else {
				require.Equal(t, "thread_name", e["name"])
				require.False(t, threads[at])
				threads[at] = true
			}
			continue
		}
		require.Contains(t, f.processes, pid)
		require.True(t, threads[at], "thread %v is named before it is used", at)
		ts := float(t, e["ts"])
		switch e["ph"] {
		case "X":
			args := e["args"].(map[string]any)
			parent, _ := args["parent"].(string)
			s := slice{e["name"].(string), args["span"].(string), parent, pid, tid, ts, ts + float(t, e["dur"])}
			f.slices = append(f.slices, s)
			byThread[at] = append(byThread[at], s)
		case "s", "f":
			require.Equal(t, "rpc", e["name"])
			require.Equal(t, "rpc", e["cat"])
			last := f.slices[len(f.slices)-1]
			require.True(t, last.pid == pid && last.tid == tid && last.start == ts, "a flow begins and ends with its slice")
			side := f.starts
			if e["ph"] == "f" {
				require.Equal(t, "e", e["bp"])
				side = f.ends
			}
			id := e["id"].(string)
			_, twice := side[id] // require.NotContains would compare with every key
			require.False(t, twice, "flow %s", id)
			side[id] = last
		default:
			require.Fail(t, "unknown phase", "%v", e)
		}
	}
	for at, ss := range byThread {
		nested(t, at, ss)
	}
	return f
}

// nested checks that the slices of a thread are apart, or lie in their parents.
func nested(t *testing.T, at [2]int, ss []slice) {
	t.Helper()
	slices.Reverse(ss) // of two with the same times the later one is the parent
	slices.SortStableFunc(ss, func(a, b slice) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	var open []slice
	for _, s := range ss {
		for len(open) > 0 && open[len(open)-1].end <= s.start {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			around := open[len(open)-1]
			if s.end > around.start && (s.end > around.end || s.parent != around.span) {
				require.Fail(t, "a span hides another", "on thread %v: %+v and %+v", at, around, s)
			}
		}
		open = append(open, s)
	}
}

func number(t *testing.T, v any) int64 {
	t.Helper()
	n, err := v.(json.Number).Int64()
	require.NoError(t, err)
	return n
}

// float reads a number as most readers do. With UseNumber the digits are those of the file.
func float(t *testing.T, v any) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(v.(json.Number).String(), 64)
	require.NoError(t, err)
	return f
}

var epoch = time.Unix(1_700_000_000, 123_456_789)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

// span is one of worker rank's, from ms to ms.
func span(side Side, rank int, id, parent ID, from, to int) Span {
	return Span{
		ID: ID(rank)<<48 | id, Parent: parent, Side: side, Worker: fmt.Sprintf("worker%d", rank), Peer: "worker9", Kind: "call", Function: "add",
		Start: at(from), End: at(to), Pass: 17, Outcome: "ok", Sent: 3, Received: 4,
	}
}

func write(t *testing.T, spans ...Span) []byte {
	t.Helper()
	var b bytes.Buffer
	c := newChrome(&b, epoch)
	for _, s := range spans {
		c.Span(s)
	}
	require.NoError(t, c.Close())
	return b.Bytes()
}

func TestACallAndItsNestedCallsAreLinkedAcrossWorkers(t *testing.T) {
	leak.Check(t)
	one := ID(1) << 48
	f := read(t, write(t,
		span(Callee, 2, 1, one|2, 4, 5),
		span(Caller, 1, 2, one|1, 3, 6),
		span(Callee, 1, 1, 7, 2, 8),
		span(Caller, 0, 7, 0, 1, 9),
	))
	require.Equal(t, map[int]string{1: "worker0", 2: "worker1", 3: "worker2"}, f.processes)
	require.Len(t, f.slices, 4)
	require.Equal(t, "add", f.slices[0].name)
	require.Equal(t, at(4).UnixNano(), f.from(f.slices[0]), "to the nanosecond")
	require.Equal(t, f.slices[1].tid, f.slices[2].tid, "a nested call lies in the function that made it")
	require.Len(t, f.ends, 2)
	for id, to := range f.ends {
		require.Equal(t, f.starts[id].span, to.parent)
		require.NotEqual(t, f.starts[id].pid, to.pid)
	}
}

func TestNoSpanHidesAnotherInRandomPrograms(t *testing.T) {
	for seed := range 60 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		var spans []Span
		for i := range 1 + r.IntN(150) {
			from := r.IntN(300)
			s := span(Caller, 0, ID(i+1), 0, from, from+r.IntN(40))
			if i > 0 && r.IntN(2) == 0 { // a child, which may outlive its parent
				p := spans[r.IntN(i)]
				s.Parent, s.Start = p.ID, p.Start.Add(time.Duration(r.IntN(20))*time.Millisecond)
				s.End = s.Start.Add(time.Duration(r.IntN(20)) * time.Millisecond)
			}
			spans = append(spans, s)
		}
		if seed%2 == 0 { // as they come; otherwise in any order
			slices.SortStableFunc(spans, func(a, b Span) int { return a.End.Compare(b.End) })
		}
		require.Len(t, read(t, write(t, spans...)).slices, len(spans), "seed %d", seed)
	}
}

// A reader whose numbers are float64 must find no two slices that overlap by less than a
// nanosecond: a viewer would drop one of them.
func TestSlicesThatTouchNestExactlyForAReaderOfFloat64(t *testing.T) {
	for seed := range soak.Cases(60) {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		late := time.Duration(r.Int64N(int64(24 * time.Hour))) // of a trace that has run for up to a day
		from := epoch.Add(late)
		var spans []Span
		var split func(parent Span, depth int)
		split = func(parent Span, depth int) {
			for at := parent.Start; at.Before(parent.End) && depth < 4 && len(spans) < 200; {
				s := span(Local, 0, ID(len(spans)+1), parent.ID, 0, 0)
				s.Start, s.End = at, at.Add(time.Duration(1+r.IntN(3_000_000>>(4*depth))))
				if s.End.After(parent.End) {
					s.End = parent.End
				}
				spans = append(spans, s)
				split(s, depth+1)
				at = s.End
			}
		}
		split(Span{Start: from, End: from.Add(time.Second)}, 0)
		slices.Reverse(spans)
		slices.SortStableFunc(spans, func(a, b Span) int { return a.End.Compare(b.End) }) // as they come: children before their parents
		f := read(t, write(t, spans...))
		require.Len(t, f.slices, len(spans))
		for i, s := range f.slices {
			require.Equal(t, 1, s.tid, "seed %d: all nest", seed)
			require.Equal(t, spans[i].Start.UnixNano(), f.from(s), "seed %d", seed)
			require.Equal(t, spans[i].End.Sub(from), time.Duration(nanos(s.end))-late, "seed %d", seed)
		}
	}
}

func TestTracesThatBeganAtOtherTimesLineUpWhenTheyAreMerged(t *testing.T) {
	written := func(start time.Time, s Span) []byte {
		var b bytes.Buffer
		c := newChrome(&b, start)
		c.Span(s)
		require.NoError(t, c.Close())
		return b.Bytes()
	}
	odd := 1234567 * time.Nanosecond
	late := written(epoch.Add(odd), span(Callee, 1, 1, 1, 3, 4))
	early := written(epoch, span(Caller, 0, 1, 0, 2, 5))
	out, m, err := merge(late, early)
	require.NoError(t, err)
	require.Equal(t, Merged{Workers: 2, Spans: 2, Flows: 1}, m)
	f := read(t, out)
	require.Equal(t, epoch.UnixNano(), f.start, "that of the earliest")
	require.Equal(t, at(3).UnixNano(), f.from(f.slices[0]))
	require.Equal(t, at(2).UnixNano(), f.from(f.slices[1]))
	require.Equal(t, at(5).Sub(epoch), time.Duration(nanos(f.slices[1].end)))
	again, _, err := merge(out)
	require.NoError(t, err)
	require.Equal(t, string(out), string(again), "merging one trace changes nothing")
}

func TestCallsOneAfterTheOtherShareAThreadHoweverMany(t *testing.T) {
	var spans []Span
	for i := range 3 * maxTop {
		spans = append(spans, span(Caller, 0, ID(i+1), 0, i, i+1))
	}
	for _, s := range read(t, write(t, spans...)).slices {
		require.Equal(t, 1, s.tid)
	}
	l := &layout{}
	for i := range 10 * maxTop {
		l.assign(interval{ID(i + 1), 0, int64(i), int64(i + 1)})
		require.LessOrEqual(t, len(l.threads[0].top), maxTop)
	}
	tid, _ := l.assign(interval{1 << 40, 0, 5, 100 * maxTop})
	require.Equal(t, 2, tid, "what is forgotten is not built over")
}

// stuck is a writer that waits, and then fails.
type stuck struct {
	free  chan struct{}
	tries int
}

func (s *stuck) Write([]byte) (int, error) {
	<-s.free
	s.tries++
	return 0, errDisk
}

var errDisk = errors.New("the disk is full")

func TestAWriterThatIsStuckOrFailsHoldsNobodyUpAndIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stuck{free: make(chan struct{})}
		c := NewChrome(w)
		c.Span(span(Caller, 0, 1, 0, 1, 2))
		synctest.Wait() // it is in Write
		for i := range 2 * maxWaiting {
			c.Span(span(Caller, 0, ID(i+2), 0, 1, 2))
		}
		require.Equal(t, maxWaiting, c.dropped)
		close(w.free)
		require.ErrorIs(t, c.Close(), errDisk)
		require.Equal(t, 1, w.tries, "a writer that failed is left alone")
		require.NoError(t, c.Close())
		c.Span(Span{}) // too late, and no harm
	})
}

func TestDroppedSpansAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := make(chan struct{}), &bytes.Buffer{}
		c := NewChrome(writerFunc(func(p []byte) (int, error) { <-r; return w.Write(p) }))
		c.Span(span(Caller, 0, 1, 0, 1, 2))
		synctest.Wait()
		for i := range maxWaiting + 3 {
			c.Span(span(Caller, 0, ID(i+2), 0, 2+i, 3+i))
		}
		close(r)
		require.ErrorContains(t, c.Close(), "3 spans were dropped")
		require.Len(t, read(t, w.Bytes()).slices, maxWaiting+1)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestASpanIsInTheFileBeforeTheNextComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		c := NewChrome(&b)
		c.Span(span(Caller, 0, 1, 0, 1, 2))
		synctest.Wait()
		m, err := Merge(&bytes.Buffer{}, Input{"killed.json", bytes.NewReader(b.Bytes())})
		require.NoError(t, err)
		require.Equal(t, Merged{Workers: 1, Spans: 1, Cut: []string{"killed.json"}}, m)
		require.NoError(t, c.Close())
	})
}

func merge(files ...[]byte) ([]byte, Merged, error) {
	var in []Input
	for i, f := range files {
		in = append(in, Input{fmt.Sprintf("%d.json", i), bytes.NewReader(f)})
	}
	var b bytes.Buffer
	m, err := Merge(&b, in...)
	return b.Bytes(), m, err
}

func TestTheFilesOfSeveralWorkersBecomeOneWhoseFlowsPairUp(t *testing.T) {
	a := write(t, span(Caller, 0, 1, 0, 1, 9), span(Caller, 0, 2, 0, 1, 9))
	b := write(t, span(Callee, 1, 1, 1, 2, 3))
	again := write(t, span(Callee, 1, 8, 2, 20, 30)) // who took the rank after it
	out, m, err := merge(a, b, again)
	require.NoError(t, err)
	require.Equal(t, Merged{Workers: 3, Spans: 4, Flows: 2}, m)
	f := read(t, out)
	require.Len(t, f.processes, 3)
	require.Len(t, f.slices, 4)
	require.Len(t, f.starts, 2)
	for id, to := range f.ends {
		require.Equal(t, id, to.parent)
		require.Contains(t, f.starts, id)
	}
	out, m, err = merge(out, write(t, span(Caller, 0, 77, 0, 1, 2)))
	require.NoError(t, err, "what was merged can be merged again")
	require.Equal(t, 5, m.Spans)
	require.Len(t, read(t, out).slices, 5)
	out, _, err = merge()
	require.NoError(t, err)
	require.Empty(t, read(t, out).slices)
}

// begun is how a trace begins.
const begun = `[{"name":"trace_start","ph":"M","pid":0,"tid":0,"args":{"unix_ns":"1700000000123456789"}}`

func TestMergeSaysWhichInputIsWrongAndWhy(t *testing.T) {
	good := string(write(t, span(Caller, 0, 1, 0, 1, 2)))
	for _, c := range []struct{ in, want string }{
		{"", "must begin"},
		{"{}", "must begin"},
		{"nonsense", "0.json, event 0"},
		{good + "x", "follows the array"},
		{good + good, "follows the array"},
		{begun + `,{"name":"a","ph":"X","ts":1.000,"pid":1,"tid":1}]`, "names no span"},
		{begun + `,{"name":"a","ph":"Q","pid":1,"tid":1}]`, `phase "Q"`},
		{begun + `,{"name":"a","ph":"s","pid":1,"tid":1}]`, "no time"},
		{begun + `,{"name":"a","ph":"s","ts":1e300,"pid":1,"tid":1}]`, "years away from the start"},
		{begun + `,{"name":"a","ph":"M","pid":1,"tid":1,"color":3}]`, "unknown field"},
		{begun + `,{"name":"a","ph":"M","pid":"one","tid":1}]`, "event 2"},
		{begun + `,{"name":"a","ph":"M","pid":1,"tid":1} {`, "event"},
		{`[{"name":"a","ph":"X","ts":1700000000123456.789,"pid":1,"tid":1}]`, "the first event should be trace_start"},
		{`[{"name":"trace_start","ph":"M","pid":0,"tid":0,"args":{"unix_ns":"soon"}}]`, "the first event should be trace_start"},
	} {
		_, _, err := merge([]byte(c.in))
		require.ErrorIs(t, err, ErrFormat, c.in)
		require.ErrorContains(t, err, c.want, c.in)
		require.ErrorContains(t, err, "0.json", c.in)
	}
	_, _, err := merge([]byte(good), []byte(good))
	require.ErrorContains(t, err, "span 1 is in 0.json too")
	_, err = Merge(writerFunc(func([]byte) (int, error) { return 0, errDisk }), Input{"a", strings.NewReader(good)})
	require.ErrorIs(t, err, errDisk)
}

func FuzzMergeTakesAnyBytesAndWritesWhatItTakesAgain(f *testing.F) {
	f.Add([]byte(begun + `,{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"worker0"}}]`))
	f.Add([]byte(begun + `,{"name":"add","ph":"X","ts":1.000,"dur":2.000,"pid":1,"tid":1,"args":{"span":"1"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, m, err := merge(b)
		if err != nil {
			return
		}
		_, again, err := merge(out)
		require.NoError(t, err, "%s", out)
		require.Equal(t, m.Spans, again.Spans)
	})
}

func TestWhatAWorkerDoesByItselfLiesInItsPartAndHasNoArrow(t *testing.T) {
	leak.Check(t)
	f := read(t, write(t,
		span(Local, 0, 2, 1, 2, 3), // compute
		span(Local, 0, 3, 1, 3, 6), // wait
		span(Caller, 0, 4, 1, 3, 6),
		span(Local, 0, 1, 0, 1, 7), // the backward
	))
	require.Len(t, f.slices, 4)
	require.Equal(t, f.slices[0].tid, f.slices[1].tid)
	require.Equal(t, f.slices[0].tid, f.slices[3].tid, "inside of the backward")
	require.NotEqual(t, f.slices[2].tid, f.slices[3].tid, "a message is on its way beside")
	require.Len(t, f.starts, 1)
	require.Empty(t, f.ends)
}
