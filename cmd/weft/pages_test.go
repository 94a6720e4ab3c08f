package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/run"
)

// commandsOf are the commands of weft in a page's samples, without the rest of their lines: what
// reads their output, redirections, and comments.
func commandsOf(page string) (all [][]string) {
	for _, block := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[1]) {
			line = regexp.MustCompile(`\s+#.*|[|<>].*`).ReplaceAllString(line, "")
			words := strings.Fields(line)
			for len(words) > 0 && strings.Contains(words[0], "=") { // variables
				words = words[1:]
			}
			if len(words) > 0 && strings.TrimPrefix(words[0], "bin/") == "weft" {
				all = append(all, words[1:])
			}
		}
	}
	return all
}

// taken says whether weft knows a command and its flags.
func taken(args []string) error {
	cmd, rest, err := root(run.Host{}, cli.NewOutput(io.Discard), io.Discard, io.Discard).Find(args)
	if err != nil {
		return err
	}
	return cmd.ParseFlags(rest)
}

func TestEveryCommandOfThePagesIsTaken(t *testing.T) {
	t.Parallel()
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../bench/*.md"} {
		pages, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, page := range pages {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			for _, args := range commandsOf(string(text)) {
				require.NoError(t, taken(args), "%s: weft %s", page, strings.Join(args, " "))
				found++
			}
		}
	}
	require.Greater(t, found, 15)
	require.Error(t, taken([]string{"nothing"}))
	require.Error(t, taken([]string{"run", "--no-such-flag", "bin/train"}))
}
