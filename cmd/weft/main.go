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
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/doctor"
	"github.com/weft-project/weft/cmd/weft/internal/run"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/cmd/weft/internal/status"
	"github.com/weft-project/weft/cmd/weft/internal/storecmd"
	"github.com/weft-project/weft/cmd/weft/internal/tracecmd"
	"github.com/weft-project/weft/internal/printable"
)

// maxReport bounds what is printed of an error, in bytes. Words of workers and of other machines
// may be in it.
const maxReport = 1 << 20

func main() {
	os.Exit(execute(run.Host{Whole: true}, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code.
func execute(h run.Host, args []string, stdout, stderr io.Writer) int {
	out := cli.NewOutput(stdout)
	root := root(h, out, stdout, stderr)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(context.Background())
	var exit *cli.ExitError
	if lost := out.Failed(); lost != nil && !errors.As(err, &exit) {
		err = cli.Exit(cli.CodeFailed, fmt.Errorf("what this prints could not be written: %w", lost))
	}
	if err == nil {
		return 0
	}
	if cmd == root && len(args) > 0 && isProgram(args[0]) {
		err = fmt.Errorf("%w; to start its workers: weft run %s", err, strings.Join(args, " "))
	}
	fmt.Fprintf(stderr, "weft: %s\n", printable.Lines(err.Error(), maxReport))
	if errors.As(err, &exit) {
		return exit.Code
	}
	fmt.Fprintf(stderr, "%q tells more\n", cmd.CommandPath()+" --help")
	return cli.CodeUsage
}

// isProgram says whether a word is rather a program than a command.
func isProgram(word string) bool {
	info, err := os.Stat(word)
	return !strings.HasPrefix(word, "-") && (strings.ContainsRune(word, filepath.Separator) || err == nil && info.Mode().IsRegular())
}

// root is the command line: all commands, which print to out.
func root(h run.Host, out *cli.Output, stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "weft",
		Version:       cli.Version(),
		Short:         "Weft trains one model across many workers",
		SilenceErrors: true,
		SilenceUsage:  true,

		PersistentPreRunE: secrets.Check,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Plainly(err) })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 100"))
	root.SetOut(out)
	root.SetErr(stderr)
	root.AddCommand(run.Command(h, stdout, stderr), status.Command(out), doctor.Command(out), tracecmd.Command(out), storecmd.Command(out, stderr), secrets.Command(out), versionCommand(out))
	return root
}

func versionCommand(stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run:   func(*cobra.Command, []string) { fmt.Fprintln(stdout, "weft", cli.Version()) },
	}
}
