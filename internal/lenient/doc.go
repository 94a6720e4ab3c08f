// Package lenient gives processes that have no core of their own timers that may be a millisecond
// late.
//
// While a Go program has work its runtime wakes every 20 µs to look after it; where no core is idle
// each time stops something that computes. With lenient timers it looks once in a millisecond.
// Linux alone has them (PR_SET_TIMERSLACK in prctl(2)); elsewhere nothing changes. Threads and
// processes get theirs from the thread that starts them. A larger value that the user has set
// stays.
package lenient

import "time"

// By is how late timers may be.
const By = time.Millisecond

// Crowded says whether so many processes that compute have no core of their own, with what else
// runs beside them.
func Crowded(processes, cores int) bool { return processes > 1 && processes >= cores }
