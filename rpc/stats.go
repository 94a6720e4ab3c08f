package rpc

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// outcome is how a call ended.
type outcome uint8

const (
	outcomeOK outcome = iota
	outcomeError
	outcomeTimeout
	outcomeCancelled
	outcomeBusy
	outcomeLost
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"ok", "error", "timeout", "cancelled", "busy", "lost"}[o]
}

// clock tells the time since a worker began; that costs half of what time.Now does.
type clock struct{ start time.Time }

func newClock() clock { return clock{time.Now()} }

func (c clock) now() time.Duration { return time.Since(c.start) }

// bounds are the upper ends of the buckets of latencies; the last bucket has none.
var bounds = [...]time.Duration{
	5 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// callStats counts the calls of a function in one direction.
type callStats struct {
	label    string // the function
	inFlight atomic.Int64
	ended    [outcomes]atomic.Uint64
	buckets  [len(bounds) + 1]atomic.Uint64 // of durations
	took     atomic.Int64                   // nanoseconds, all together
}

func (s *callStats) end(o outcome) {
	s.inFlight.Add(-1)
	s.ended[o].Add(1)
}

func (s *callStats) observe(d time.Duration) {
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	s.buckets[i].Add(1)
	s.took.Add(int64(d))
}

// maxLabels bounds the functions that are told apart, for programs that make up functions as they
// run.
const maxLabels = 1024

// The functions that are none: fetching the values of references, and those beyond maxLabels.
const (
	fetchLabel = "(fetch)"
	otherLabel = "(other)"
)

// functionStats are the counts of all functions in one direction. Finding one neither locks nor
// allocates.
type functionStats struct {
	mu  sync.Mutex // to add one
	all atomic.Pointer[map[string]*callStats]
}

// of finds the counts of a function that this program has declared; names from the network do not
// belong here.
func (f *functionStats) of(name string) *callStats {
	if s := f.list()[name]; s != nil {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.list()
	label := name
	if !utf8.ValidString(label) { // which a label must be
		label = strconv.QuoteToASCII(label)
	}
	if len(all) >= maxLabels {
		label = otherLabel
	}
	s := all[label]
	if s == nil {
		s = &callStats{label: label}
	} else if label == otherLabel || all[name] != nil {
		return s
	}
	next := maps.Clone(all)
	if next == nil {
		next = map[string]*callStats{}
	}
	next[label] = s
	if label != otherLabel {
		next[name] = s
	}
	f.all.Store(&next)
	return s
}

// list has an entry under the label of each, and may have others.
func (f *functionStats) list() map[string]*callStats {
	if all := f.all.Load(); all != nil {
		return *all
	}
	return nil
}

// histogram is what the durations are for Prometheus. A call that ends meanwhile is in all buckets
// or in none.
func (s *callStats) histogram(d *prometheus.Desc) prometheus.Metric {
	buckets := make(map[float64]uint64, len(bounds))
	var n uint64
	for i := range s.buckets {
		n += s.buckets[i].Load()
		if i < len(bounds) {
			buckets[bounds[i].Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(d, n, time.Duration(s.took.Load()).Seconds(), buckets, s.label)
}
