package tracecmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/rpc/trace"
)

// Command is "weft trace", which prints to stdout.
func Command(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "trace", Short: "Work with the traces that workers write", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("expected what to do, as in: weft trace merge")
		}}
	var out string
	var force bool
	merge := &cobra.Command{
		Use:     "merge -o OUT.json IN.json…",
		Short:   "Make one trace of several workers' for ui.perfetto.dev",
		Example: "  weft run --nproc-per-node 2 --trace spans bin/digits && " + mergeExample,
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" || len(args) == 0 {
				return errors.New("expected the file to write and the files to read, as in: " + mergeExample)
			}
			return mergeTraces(stdout, out, force, args)
		},
	}
	merge.Flags().StringVarP(&out, "output", "o", "", "file to write")
	merge.Flags().BoolVar(&force, "force", false, "write it also where it exists")
	cmd.AddCommand(merge)
	return cmd
}

const mergeExample = "weft trace merge -o all.json spans/*.json"

// mergeTraces writes to a new file beside out first: what is there is left alone where something
// fails.
func mergeTraces(stdout io.Writer, out string, force bool, in []string) (err error) {
	if err := mayWrite(out, force, in); err != nil {
		return err
	}
	var inputs []trace.Input
	for _, name := range in {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		inputs = append(inputs, trace.Input{Name: name, Reader: f})
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".weft-trace-*") // nobody knows the name before
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // where it was not renamed
	m, err := trace.Merge(f, inputs...)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), out)
	}
	if err != nil {
		return cli.Exit(cli.CodeFailed, err)
	}
	fmt.Fprintf(stdout, "%s: %d spans of %d workers, %d calls with both ends\n", out, m.Spans, m.Workers, m.Flows)
	for _, name := range m.Cut {
		fmt.Fprintf(stdout, "%s ends too early, as that of a killed worker does\n", name)
	}
	return nil
}

// mayWrite refuses to write over an input, and over anything else that was not meant.
func mayWrite(out string, force bool, in []string) error {
	there, err := os.Stat(out)
	if err != nil {
		return nil //nolint:nilerr // there is nothing; creating it tells what else is wrong
	}
	for _, name := range in {
		if info, err := os.Stat(name); err == nil && os.SameFile(there, info) {
			return fmt.Errorf("--output: %s is one of the files to read (%s)", out, name)
		}
	}
	if !force {
		return fmt.Errorf("--output: %s is there already; --force replaces it", out)
	}
	return nil
}
