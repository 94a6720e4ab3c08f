// Command weft runs jobs and looks after the machines they run on.
//
//	weft run --nproc-per-node 2 bin/digits   start two workers here and watch them
//	weft status --rdzv-endpoint host:port    say who takes part in a job, and who did
//	weft doctor                              say what this machine offers to a job
//	weft doctor --init tcp://host:port       say which lanes the workers of a running job use
//	weft trace merge -o all.json a.json …    make one trace of the workers' own
//	weft token                               make a secret for a job
//	weft store serve                         serve a key-value store
//	weft store get --url tcp://host:port k   look into one
//	weft version
//
// The exit code of "weft run" is 0 if every worker succeeded at last, else that of the failed
// worker that ended the job: its own, 128 plus the signal's number where a signal ended it, 127
// where its program or interpreter had gone, and 126 where it could not be started for another
// reason. It is 128 plus the signal's number where a signal ended weft, and 141 where nobody read
// the output any more.
//
// For every command 2 means that the command line is wrong: a flag, an argument, a variable in the
// place of one, or a file or folder that one of them names cannot be taken, as a program that is
// not there, or a secret that others can read. That is found before anything is begun. 1 means that
// something else failed: an address is taken, a store is out of reach or refuses, output could not
// be written.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/internal/printable"
)

const (
	codeFailed = 1
	codeUsage  = 2
)

// maxReport bounds what is printed of an error, in bytes. Words of workers and of other machines
// may be in it.
const maxReport = 1 << 20

func main() {
	os.Exit(host{whole: true}.execute(os.Args[1:], os.Stdout, os.Stderr))
}

// exitError is an error of a command that ran; all other errors are about the command line.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// execute runs one command line and returns the exit code.
func (h host) execute(args []string, stdout, stderr io.Writer) int {
	out := &output{w: stdout}
	root := h.root(out, stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	var exit *exitError
	if lost := out.failed(); lost != nil && !errors.As(err, &exit) {
		err = &exitError{codeFailed, fmt.Errorf("what this prints could not be written: %w", lost)}
	}
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "weft: %s\n", printable.Lines(err.Error(), maxReport))
	if errors.As(err, &exit) {
		return exit.code
	}
	fmt.Fprintf(stderr, "%q tells more\n", cmd.CommandPath()+" --help")
	return codeUsage
}

// root is the command line: all commands, which print to out.
func (h host) root(out *output, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "weft",
		Version:       version(),
		Short:         "Weft trains one model across many workers",
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: checkSecretFlags,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return plainly(err) })
	root.SetOut(out)
	root.SetErr(stderr)
	root.AddCommand(runCommand(h, stdout, stderr), statusCommand(out), doctorCommand(out), traceCommand(out), storeCommand(out, stderr), tokenCommand(out), versionCommand(out))
	return root
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Fprintln(stdout, "weft", version()) },
	}
}

// version is the module's version and commit, as far as the build knows them, and Go's.
func version() string {
	v := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += " " + s.Value
			}
		}
	}
	return fmt.Sprintf("%s (%s, %s/%s)", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
