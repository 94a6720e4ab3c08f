package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/rpc/trace"
)

func traceCommand(stdout io.Writer) *cobra.Command {
	cmd := &cobra.Command{Use: "trace", Short: "Work with the traces that workers write", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("expected what to do, as in: weft trace merge")
		}}
	cmd.AddCommand(&cobra.Command{
		Use:     "merge OUT.json IN.json…",
		Short:   "Make one trace of several workers' for ui.perfetto.dev",
		Example: "  weft run --nproc-per-node 2 --trace spans bin/digits && weft trace merge all.json spans/*.json",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := mergeTraces(stdout, args[0], args[1:]); err != nil {
				return &exitError{codeFailed, err}
			}
			return nil
		},
	})
	return cmd
}

// mergeTraces writes to a new file beside out first: out may be one of the inputs, and is left alone where something fails.
func mergeTraces(stdout io.Writer, out string, in []string) (err error) {
	var inputs []trace.Input
	for _, name := range in {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		inputs = append(inputs, trace.Input{Name: name, Reader: f})
	}
	f, err := os.Create(out + ".part")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // where it was not renamed
	m, err := trace.Merge(f, inputs...)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: %d spans of %d workers, %d calls with both ends\n", out, m.Spans, m.Workers, m.Flows)
	for _, name := range m.Cut {
		fmt.Fprintf(stdout, "%s ends too early, as that of a killed worker does\n", name)
	}
	return nil
}
