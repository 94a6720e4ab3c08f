package eager

import (
	"runtime"
	"sync/atomic"
	"time"
)

// patience is for how long a reader that has just had something looks again before it goes to
// sleep. To be woken costs 10 to 50 µs at each end where processors are idle, as long as a small
// call itself: who looks for that long mostly finds the answer. It is more than twice the waking,
// so that two ends of which one has slept meet again.
const patience = 120 * time.Microsecond

// Lookout bounds how many readers look at a time: more than the machine has processors to spare
// would keep each other, and the peer, from running.
type Lookout struct {
	most    int32
	looking atomic.Int32

	solo bool
	last atomic.Pointer[habit] // whose owner waited last; if solo
}

// NewSoloLookout is for a server: a reader looks only while no other has anything to read. With
// several there is mostly something to be done, from which looking would keep a processor.
func NewSoloLookout() *Lookout {
	l := NewLookout()
	l.solo = true
	return l
}

// alone says whether the owner of h, which begins to wait, was also the last to do so.
func (l *Lookout) alone(h *habit) bool {
	return !l.solo || l.last.Load() == h || l.last.Swap(h) == h
}

// NewLookout is for the connections of one network.
func NewLookout() *Lookout {
	return &Lookout{most: int32(min(runtime.GOMAXPROCS(0), runtime.NumCPU()-1))}
}

// watch polls until ready says so, or for patience; other goroutines run in between.
func (l *Lookout) watch(ready func() bool) bool {
	if l.looking.Add(1) > l.most {
		l.looking.Add(-1)
		return false
	}
	defer l.looking.Add(-1)
	for end := time.Now().Add(patience); ; {
		runtime.Gosched() // what was just read has to be worked on before anything can come of it
		if ready() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// habit decides whether a reader looks before it sleeps. Where processors are idle looking shortens
// the wait to a quarter, if both ends do it; where other processes want them it only keeps the peer
// from answering. So both ways are measured: one is kept, and the other tried at times that both
// ends read off their clocks. The zero habit sleeps.
type habit struct {
	mean  [2]time.Duration // of the waits that slept at once, and of those that looked first; 0: not known
	looks bool             // what is done outside trials
	trial bool
}

const (
	trialEvery = 128 * time.Millisecond
	trialFor   = 4 * time.Millisecond
	longWait   = 500 * time.Microsecond // a longer one says nothing about either way
)

// way says whether a wait that begins now looks first.
func (h *habit) way(now time.Time) bool {
	trial := time.Duration(now.UnixNano())%trialEvery < trialFor
	switch {
	case trial && !h.trial:
		h.mean[index(!h.looks)] = 0
	case !trial && h.trial && h.mean[0] != 0 && h.mean[1] != 0:
		h.looks = h.mean[1] < h.mean[0]
	}
	h.trial = trial
	return h.looks != trial
}

// took notes how long a wait of that way was.
func (h *habit) took(looked bool, wait time.Duration) {
	mean := &h.mean[index(looked)]
	switch {
	case wait > longWait:
	case *mean == 0:
		*mean = wait
	default:
		*mean += (wait - *mean) / 8
	}
}

func index(looks bool) int {
	if looks {
		return 1
	}
	return 0
}
