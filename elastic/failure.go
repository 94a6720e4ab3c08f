package elastic

import (
	"fmt"
	"strings"
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

// WorkerError is the first failure of a job: the worker that ended it, how, and its last words.
type WorkerError struct {
	Exit
	// Stderr is the worker's last lines on stderr, at most ten.
	Stderr []string
}

func (e *WorkerError) Error() string { return "elastic: " + e.String() }

// Report is the error for people: the last lines of the worker's stderr, and at the end what happened to it.
func (e *WorkerError) Report() string {
	var b strings.Builder
	if len(e.Stderr) > 0 {
		fmt.Fprintf(&b, "last lines of %s on stderr:\n", e.Name())
		for _, line := range e.Stderr {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	b.WriteString(e.String())
	return b.String()
}
