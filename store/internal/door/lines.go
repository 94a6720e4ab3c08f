package door

import "time"

// Lines bounds how many lines of a log strangers can cause: some at once, and then one a second.
// Its zero value is ready.
type Lines struct {
	full   time.Time // when all may be said at once again
	unsaid int
}

const (
	burst = 16
	pace  = time.Second
)

// Say says whether to write a line now, and how many before it were not written.
func (l *Lines) Say(now time.Time) (say bool, unsaid int) {
	if l.full.Before(now) {
		l.full = now
	}
	if l.full.Sub(now) > (burst-1)*pace {
		l.unsaid++
		return false, 0
	}
	l.full = l.full.Add(pace)
	unsaid, l.unsaid = l.unsaid, 0
	return true, unsaid
}
