package secrets

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/transport"
)

// Command is "weft token", which prints to stdout.
func Command(stdout io.Writer) *cobra.Command {
	out := ""
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make a secret for a job",
		Long: `Make a secret for a job: 256 random bits, which nobody can guess.

Give the same one to all machines of a job: by --token-file, by the file's name in
$` + secret.FileVariable + `, or itself in $` + secret.Variable + `. Whoever has it is a member of the job, and may do what
any member may. A file with a secret is taken only if nobody else can read it. --output makes one
of that kind, and writes over none.`,
		Example: "  weft token --output job.token\n  WEFT_TOKEN=$(weft token) bin/elastic",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("expected no arguments, got %s; to write a file: weft token --output %s", args[0], args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error {
			token := transport.NewToken()
			if out == "" {
				fmt.Fprintln(stdout, token)
				return nil
			}
			err := writeSecret(out, token)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("--output: %s is there already, and is kept: name another file, or remove that one first", out)
			}
			if err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to make, which its user alone can read, in place of printing it")
	return cmd
}

// writeSecret makes a file, and writes over none.
func writeSecret(path, line string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
