package door

import "time"

// Lines bounds how many lines of a log strangers can cause: some at once, and then one a second,
// and of those that say the same of the same one a minute. Its zero value is ready.
type Lines struct {
	full   time.Time            // when all may be said at once again
	said   map[string]time.Time // what was said, and when
	unsaid int
}

const (
	burst   = 16
	pace    = time.Second
	again   = time.Minute
	mostOld = 256 // things said that are remembered
)

// Say says whether to write a line now, and how many before it were not written. about is the same
// for lines that say the same of the same; "" is like no other.
func (l *Lines) Say(now time.Time, about string) (say bool, unsaid int) {
	if l.full.Before(now) {
		l.full = now
	}
	if l.full.Sub(now) > (burst-1)*pace || l.old(now, about) {
		l.unsaid++
		return false, 0
	}
	l.full = l.full.Add(pace)
	unsaid, l.unsaid = l.unsaid, 0
	return true, unsaid
}

// old says whether a line like that was written a while ago, and else remembers this one.
func (l *Lines) old(now time.Time, about string) bool {
	if at, said := l.said[about]; about == "" || said && now.Sub(at) < again {
		return said
	}
	if len(l.said) >= mostOld {
		for about, at := range l.said {
			if now.Sub(at) >= again {
				delete(l.said, about)
			}
		}
	}
	if len(l.said) < mostOld {
		if l.said == nil {
			l.said = map[string]time.Time{}
		}
		l.said[about] = now
	}
	return false
}
