package main

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/run"
)

func TestTheHelpOfEveryCommandFitsIntoAHundredColumns(t *testing.T) {
	t.Parallel()
	var seen int
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		var out bytes.Buffer
		words := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		require.Zero(t, here(words, &out, &out))
		for line := range strings.Lines(out.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), 100, "%v: %s", words, line)
		}
		seen++
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(root(run.Host{}, cli.NewOutput(&bytes.Buffer{}), &bytes.Buffer{}, &bytes.Buffer{}))
	require.Greater(t, seen, 15)
}
