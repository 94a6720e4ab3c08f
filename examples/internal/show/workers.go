package show

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weft-project/weft/elastic/agent"
)

// Workers starts this program again as n workers, with args, as weft run would; name is for
// messages. It gives the exit code: that of the worker that failed first, which it reports on
// stderr.
func Workers(c context.Context, name string, n int, args []string, stdout, stderr io.Writer) int {
	return WorkersWhile(c, name, n, nil, args, stdout, stderr)
}

// WorkersWhile is Workers for a job that may go on after a worker has failed; nil: it never does.
func WorkersWhile(c context.Context, name string, n int, goesOn func(agent.Exit) bool, args []string, stdout, stderr io.Writer) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	_, err = agent.Run(c, agent.Spec{Program: self, Args: args, NprocPerNode: n, Stdout: stdout, Stderr: stderr, NoPrefix: true, GoesOn: goesOn})
	var failed *agent.WorkerError
	switch {
	case errors.As(err, &failed):
		fmt.Fprintln(stderr, "the job failed\n"+failed.Report())
		return failed.Code
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}
