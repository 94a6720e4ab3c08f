package counts

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcome is how a call ended.
type Outcome uint8

// The ways in which a call can end.
const (
	OutcomeOK Outcome = iota
	OutcomeError
	OutcomeTimeout
	OutcomeCancelled
	OutcomeBusy
	OutcomeLost
	Outcomes
)

func (o Outcome) String() string {
	return [Outcomes]string{"ok", "error", "timeout", "cancelled", "busy", "lost"}[o]
}

// Clock tells the time since a worker began; that costs half of what time.Now does.
type Clock struct{ start time.Time }

// NewClock starts a clock.
func NewClock() Clock { return Clock{time.Now()} }

// Now is the time since the clock began.
func (c Clock) Now() time.Duration { return time.Since(c.start) }

// Bounds are the upper ends of the buckets of latencies; the last bucket has none.
var Bounds = [...]time.Duration{
	5 * time.Microsecond, 10 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute,
}

// CallStats counts the calls of a function in one direction.
type CallStats struct {
	Label    string // the function
	InFlight atomic.Int64
	Ended    [Outcomes]atomic.Uint64
	buckets  [len(Bounds) + 1]atomic.Uint64 // of durations
	took     atomic.Int64                   // nanoseconds, all together
}

// End counts the end of a call that was under way.
func (s *CallStats) End(o Outcome) {
	s.InFlight.Add(-1)
	s.Ended[o].Add(1)
}

// Observe counts how long a call took.
func (s *CallStats) Observe(d time.Duration) {
	i := 0
	for i < len(Bounds) && d > Bounds[i] {
		i++
	}
	s.buckets[i].Add(1)
	s.took.Add(int64(d))
}

// MaxLabels bounds the functions that are told apart, for programs that make up functions as they
// run.
const MaxLabels = 1024

// The functions that are none: fetching the values of references, and those beyond maxLabels.
const (
	FetchLabel = "(fetch)"
	OtherLabel = "(other)"
)

// FunctionStats are the counts of all functions in one direction. Finding one neither locks nor
// allocates.
type FunctionStats struct {
	mu  sync.Mutex // to add one
	all atomic.Pointer[map[string]*CallStats]
}

// Of finds the counts of a function that this program has declared; names from the network do not
// belong here.
func (f *FunctionStats) Of(name string) *CallStats {
	if s := f.List()[name]; s != nil {
		return s
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.List()
	label := name
	if !utf8.ValidString(label) { // which a label must be
		label = strconv.QuoteToASCII(label)
	}
	if len(all) >= MaxLabels {
		label = OtherLabel
	}
	s := all[label]
	if s == nil {
		s = &CallStats{Label: label}
	} else if label == OtherLabel || all[name] != nil {
		return s
	}
	next := maps.Clone(all)
	if next == nil {
		next = map[string]*CallStats{}
	}
	next[label] = s
	if label != OtherLabel {
		next[name] = s
	}
	f.all.Store(&next)
	return s
}

// List has an entry under the label of each, and may have others.
func (f *FunctionStats) List() map[string]*CallStats {
	if all := f.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Histogram is what the durations are for Prometheus. A call that ends meanwhile is in all buckets
// or in none.
func (s *CallStats) Histogram(d *prometheus.Desc) prometheus.Metric {
	buckets := make(map[float64]uint64, len(Bounds))
	var n uint64
	for i := range s.buckets {
		n += s.buckets[i].Load()
		if i < len(Bounds) {
			buckets[Bounds[i].Seconds()] = n
		}
	}
	return prometheus.MustNewConstHistogram(d, n, time.Duration(s.took.Load()).Seconds(), buckets, s.Label)
}
