package client

import (
	"fmt"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
)

// effect is what it does to the store when a command is done again.
type effect byte

const (
	reads   effect = iota // it changes nothing
	repeats               // the second time changes nothing more
	once                  // the second time changes it again
)

func effectOf(o state.Op) effect {
	switch o {
	case state.OpSet, state.OpMultiSet, state.OpDelete:
		return repeats
	case state.OpAdd, state.OpCompareSet, state.OpAppend, state.OpPush, state.OpPop, state.OpTake, state.OpBarrier, state.OpArrive:
		return once
	}
	return reads
}

// outcome is what became of one try to do an operation on one connection.
type outcome struct {
	err   error  // nil: it is done
	sent  effect // the worst of the commands of which something was sent and no answer has come
	told  bool   // err is the server's answer: the last change has not happened
	final bool   // another try would not mend it, or there is no time for one
	brief bool   // a connection in good order was closed as soon as it was used
	late  bool   // err says only that the time is over
}

// retry decides whether an operation is tried again. It knows no clock and no connection.
type retry struct {
	uncertain bool // an earlier try may have done it
	fails     int  // tries so far
	brief     int  // brief ones in a row
}

const (
	retryFirst = 5 * time.Millisecond
	retryMost  = time.Second
	mostBrief  = 8 // a server that closes so many connections does it because of what it is asked
)

// next says after which time to try again, or that the operation is over, with or without an error.
// jitter is in [0, 1): those who lost their connections at the same moment must not come back at
// the same moment.
func (r *retry) next(o outcome, jitter float64) (wait time.Duration, over bool, err error) {
	if o.err == nil {
		return 0, true, nil
	}
	if o.brief {
		r.brief++
	} else {
		r.brief = 0
	}
	doubtful := !o.told && o.sent != reads
	if o.final || o.told || doubtful && o.sent == once || r.brief == mostBrief {
		if r.brief == mostBrief {
			o.err = fmt.Errorf("%w, as %d before it, each as soon as it was used: the server does not take what it is asked", o.err, mostBrief-1)
		}
		if doubtful || r.uncertain {
			o.err = fmt.Errorf("%w; %w", o.err, kv.ErrUncertain)
		}
		return 0, true, o.err
	}
	r.uncertain = r.uncertain || doubtful
	wait = min(retryFirst<<min(r.fails, 10), retryMost)
	if r.fails == 0 { // most likely an idle connection to a server that was started anew
		wait = time.Duration(jitter * float64(wait))
	} else {
		wait = wait/2 + time.Duration(jitter*float64(wait))
	}
	r.fails++
	return wait, false, nil
}
