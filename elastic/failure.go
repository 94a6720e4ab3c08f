package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Exit is how one worker ended.
type Exit struct {
	Rank, LocalRank int
	PID             int
	// Code is the exit code; where a signal ended the worker, 128 plus the signal's number.
	Code int
	// Signal is the number of the signal that ended the worker, or 0.
	Signal int
}

// Name is what messages call the worker.
func (e Exit) Name() string { return workerName(e.Rank) }

func (e Exit) String() string {
	who := fmt.Sprintf("%s (rank %d, pid %d)", e.Name(), e.Rank, e.PID)
	if e.Signal != 0 {
		return fmt.Sprintf("%s was killed by signal %d (%s)", who, e.Signal, signalName(e.Signal))
	}
	return fmt.Sprintf("%s exited with code %d", who, e.Code)
}

// Failure is how a worker failed, and what it said of it.
type Failure struct {
	Exit
	// Time is when it failed: as its error file says, or else when its end was seen.
	Time time.Time
	// Message and Stack are what its error file says, empty if it wrote none.
	Message string
	Stack   []string
	// Stderr is the worker's last lines on stderr, at most ten.
	Stderr []string
	// ErrorFile and LogFile are where it wrote and its stderr is kept, empty if nothing of it is.
	ErrorFile, LogFile string

	raw []byte // the error file
}

// tell adds what the worker's error file says. Its time counts where it is that of a worker which took longer to end, and it is known to the
// second alone.
func (f *Failure) tell(raw []byte, started, seen time.Time) {
	r := parseReason(raw)
	f.raw, f.Message, f.Stack, f.Time = raw, r.message, r.stack, seen
	if latest := r.time.Add(time.Second); latest.After(started) && latest.Before(seen) {
		f.Time = latest
	}
}

// brief is the failure in one line.
func (f Failure) brief() string {
	if f.Message == "" {
		return f.String()
	}
	first, _, _ := strings.Cut(f.Message, "\n")
	if len(first) > 256 {
		first = first[:256]
	}
	return f.String() + ": " + strings.ToValidUTF8(first, "") // the others get it as text, which must be whole
}

// write writes the failure with its details.
func (f Failure) write(b *strings.Builder, when string) {
	fmt.Fprintf(b, "%s: %s\n", when, f.Exit)
	part := func(name, file string, lines []string) {
		if len(lines) == 0 {
			return
		}
		if file != "" {
			name += " (" + file + ")"
		}
		fmt.Fprintf(b, "  %s:\n", name)
		for _, line := range lines {
			fmt.Fprintf(b, "    %s\n", line)
		}
	}
	var said []string
	if f.Message != "" {
		said = append(strings.Split(f.Message, "\n"), f.Stack...)
	}
	part("its error file", f.ErrorFile, said)
	part("its last lines on stderr", f.LogFile, f.Stderr)
}

// WorkerError is the first failure of a job, which ended it: the worker, how it failed, and its last words.
type WorkerError struct {
	Failure
	// Others are the workers of this node that failed before the job was over, in the order of time.
	Others []Failure
}

// newWorkerError is the error of failures, of which there is at least one, in any order.
func newWorkerError(all []Failure) *WorkerError {
	all = slices.SortedFunc(slices.Values(all), func(a, b Failure) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Rank, b.Rank)) })
	return &WorkerError{all[0], all[1:]}
}

func (e *WorkerError) Error() string { return "elastic: " + e.brief() }

// maxOthers is how many failures after the first are told with their details.
const maxOthers = 4

// Report is the error for people: each failure with its last words, the first one first, and at the end in one line what ended the job.
func (e *WorkerError) Report() string {
	var b strings.Builder
	if len(e.Others)+len(e.Message)+len(e.Stderr) > 0 { // else the last line says it all
		e.write(&b, "first failure, at "+e.Time.Format("15:04:05.000"))
	}
	for i, f := range e.Others {
		if i == maxOthers {
			fmt.Fprintf(&b, "then %d more\n", len(e.Others)-i)
			break
		}
		f.write(&b, fmt.Sprintf("then, %.3f s later", f.Time.Sub(e.Time).Seconds()))
	}
	b.WriteString(e.brief())
	return b.String()
}
