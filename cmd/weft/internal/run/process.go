package run

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/weft-project/weft/internal/proctree"
)

// CodeUnread is the exit code of a job that ended as nobody read its output, that of a program
// which SIGPIPE ends.
const CodeUnread = 128 + int(syscall.SIGPIPE)

// Host is what a process is to a job that weft run runs in it. The zero value is for a process in
// which others do something, too, such as a test.
type Host struct{ Whole bool }

// prepare makes a whole process one that outlives the reader of its output, so that the workers may
// end in good order, and that inherits what the workers start: adopts says whether it does.
func (h Host) prepare() (adopts bool) {
	if !h.Whole {
		return false
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // writes say it; workers get the signal as ever, which they would not if it were ignored
	return proctree.Adopt() || os.Getpid() == 1
}
