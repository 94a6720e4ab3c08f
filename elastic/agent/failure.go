package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weft-project/weft/elastic/internal/errorfile"
	"github.com/weft-project/weft/elastic/internal/process"
	"github.com/weft-project/weft/internal/printable"
)

// Exit is how one worker ended.
type Exit struct {
	Rank, LocalRank int
	PID             int // 0 if it could not be started
	// Code is the exit code; where a signal ended the worker, 128 plus the signal's number. As in a
	// shell, that of a worker which could not be started is 127 where its program is not there, and
	// else 126.
	Code int
	// Signal is the number of the signal that ended the worker, or 0.
	Signal int
}

// Name is what messages call the worker.
func (e Exit) Name() string { return workerName(e.Rank) }

func (e Exit) String() string {
	who := fmt.Sprintf("%s (rank %d, pid %d)", e.Name(), e.Rank, e.PID)
	switch {
	case e.PID == 0:
		return fmt.Sprintf("%s (rank %d) did not start", e.Name(), e.Rank)
	case e.Signal != 0:
		return fmt.Sprintf("%s was killed by signal %d (%s)", who, e.Signal, process.SignalName(e.Signal))
	}
	return fmt.Sprintf("%s exited with code %d", who, e.Code)
}

// Failure is how a worker failed, and what it said of it.
type Failure struct {
	Exit
	// Start is why it could not be started, nil if it was.
	Start error
	// Round is that in which it failed.
	Round int
	// Time is when it failed: as its error file says, or else when its end was seen.
	Time time.Time
	// Message and Stack are what its error file says, empty if it wrote none.
	Message string
	Stack   []string
	// Stderr is the worker's last lines on stderr, at most ten.
	Stderr []string
	// ErrorFile and LogFile are where it wrote and its stderr is kept, empty if nothing of it is.
	ErrorFile, LogFile string

	raw     []byte // the error file
	nth     int    // of those of this node that the job was told of, from 1; 0 if it was not
	started time.Time
	deaf    bool // it never asked for its place
}

// addErrorFile adds what the worker's error file says. Its time counts where it is that of a worker
// which took longer to end, and it is known to the second alone.
func (f *Failure) addErrorFile(raw []byte, started, seen time.Time) {
	r := errorfile.Parse(raw)
	f.raw, f.Message, f.Stack, f.Time, f.started = raw, r.Message, r.Stack, seen, started
	if latest := r.Time.Add(time.Second); latest.After(started) && latest.Before(seen) {
		f.Time = latest
	}
}

// brief is the failure in one line.
func (f Failure) brief() string {
	why, most := f.Message, 256
	if f.Start != nil {
		why, most = f.Start.Error(), errorfile.MaxMessage
	}
	if why == "" {
		return f.String()
	}
	first, _, _ := strings.Cut(why, "\n")
	return f.String() + ": " + printable.Text(first, most)
}

// isBrief says that its line has all that is known of the failure.
func (f Failure) isBrief() bool {
	return len(f.Stack)+len(f.Stderr)+len(f.ErrorFile) == 0 && (f.Message == "" || strings.HasSuffix(f.brief(), f.Message))
}

// words are the last ones of the worker.
func (f Failure) words() string {
	return strings.Join(slices.Concat([]string{f.Message}, f.Stack, f.Stderr), "\n")
}

// write writes the failure with its details.
func (f Failure) write(b *strings.Builder, when string) {
	how := f.Exit.String()
	if f.Start != nil {
		how = f.brief()
	}
	fmt.Fprintf(b, "%s: %s\n", when, how)
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

// WorkerError is the first failure for which no restart was left, which ended the job: the worker,
// how it failed, and its last words.
type WorkerError struct {
	Failure
	// Others are the workers of this node that failed after it and before the job was over, in the
	// order of time.
	Others []Failure
	// Earlier are failures of this node's workers after which they were started again, in the order
	// of time: the first and the latest ones.
	Earlier []Failure
}

// newWorkerError is the error of failures, of which there is at least one, in any order; earlier
// ones have not ended the job.
func newWorkerError(all []Failure, earlier ...Failure) *WorkerError {
	all = byTime(all)
	if i := slices.IndexFunc(all, func(f Failure) bool { return f.overtakes(all[0]) }); i > 0 {
		cause := all[i]
		cause.Time = all[0].Time
		all = slices.Insert(slices.Delete(all, i, i+1), 0, cause)
	}
	return &WorkerError{all[0], all[1:], byTime(earlier)}
}

// byTime are the failures sorted by time, and then by rank.
func byTime(all []Failure) []Failure {
	return slices.SortedFunc(slices.Values(all), func(a, b Failure) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Rank, b.Rank))
	})
}

// lag is by how much the end of a killed worker may be seen later than what it did to others. A
// system closes the connections of a process first, and tells of its end when all of its threads
// have gone.
const lag = time.Second

// overtakes says that f, whose end was seen after first's, is nevertheless the earlier one: a
// signal that no other worker can have caused has ended it.
func (f Failure) overtakes(first Failure) bool {
	return f.killed() && !first.killed() && f.Time.Sub(first.Time) < lag
}

// killed says that the worker was ended from outside, as the system does when memory runs out, or
// by a fault of its own.
func (f Failure) killed() bool {
	switch syscall.Signal(f.Signal) {
	case syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE:
		return true
	}
	return false
}

func (e *WorkerError) Error() string { return e.brief() }

// outlived is the first failure of another worker that happened while this one ran, "" if there is
// none, or if this one hears of its places: one that does not may have given up for that reason.
func (e *WorkerError) outlived() string {
	for _, f := range e.Earlier {
		if e.deaf && f.Rank != e.Rank && f.Time.After(e.started) {
			return f.Name()
		}
	}
	return ""
}

// Unwrap is why the worker could not be started, nil if it was.
func (e *WorkerError) Unwrap() error { return e.Start }

// CopyTo writes the worker's error file, with the exit code in it, to a file: a launcher of this
// launcher may have named one.
func (e *WorkerError) CopyTo(path string) error {
	var whole map[string]any
	if json.Unmarshal(e.raw, &whole) != nil || whole == nil {
		whole = map[string]any{}
	}
	message, ok := whole["message"].(map[string]any)
	if !ok {
		message = map[string]any{"message": e.brief(), "extraInfo": map[string]any{"timestamp": strconv.FormatInt(e.Time.Unix(), 10)}}
		whole["message"] = message
	}
	message["errorCode"] = e.Code
	b, err := json.Marshal(whole)
	if err != nil {
		return errors.New("an error file that cannot be written again")
	}
	return os.WriteFile(path, b, 0o600)
}

// maxOthers is how many failures after the first are told with their details, and how many before
// it in a line each.
const maxOthers = 4

// maxEarlier is how many failures are kept of workers that have failed again since.
const maxEarlier = 16

// Report is the error for people: the failure that ended the job and those that followed, with
// their last words; earlier ones, after which workers were started again, the first of them with
// its last words, as it may be the cause, and the others in a line each; and at the end in one line
// what ended the job.
func (e *WorkerError) Report() string {
	var b strings.Builder
	if len(e.Others)+len(e.Earlier) > 0 || !e.isBrief() { // else the last line says it all
		first := "first failure"
		if len(e.Earlier) > 0 {
			first += " after the last restart"
		}
		e.write(&b, first+", at "+e.Time.Format(clock))
	}
	for i, f := range e.Others {
		if i == maxOthers {
			fmt.Fprintf(&b, "then %d more\n", len(e.Others)-i)
			break
		}
		later := fmt.Sprintf("then, %.3f s later", f.Time.Sub(e.Time).Seconds())
		if words := f.words(); words != "" && words == e.words() {
			fmt.Fprintf(&b, "%s: %s, with the same words\n", later, f.Exit)
			continue
		}
		f.write(&b, later)
	}
	for i, f := range e.Earlier { // the first one may be the cause of all others
		switch hidden := len(e.Earlier) - maxOthers; {
		case i == 1 && hidden > 0:
			fmt.Fprintf(&b, "and %d more\n", hidden)
		case i == 0:
			f.write(&b, fmt.Sprintf("earlier, at %s in round %d", f.Time.Format(clock), f.Round))
		case i > hidden:
			fmt.Fprintf(&b, "earlier, at %s in round %d: %s\n", f.Time.Format(clock), f.Round, f.brief())
		}
	}
	b.WriteString(e.brief())
	return b.String()
}

const clock = "15:04:05.000"
