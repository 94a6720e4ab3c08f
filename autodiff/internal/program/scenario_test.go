package program

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewriteFiles = flag.Bool("rewrite", false, "write what the passes give into testdata, to be read before it is committed")

// passes are what the scenario files of testdata are named for.
var passes = map[string]func(u *Unit){
	"dead":     dead,
	"same":     func(u *Unit) { same(u); dead(u) },
	"fold":     func(u *Unit) { fold(u); fills(u); dead(u) },
	"layout":   func(u *Unit) { layout(u); fold(u); dead(u) },
	"fuse":     func(u *Unit) { fuse(u); dead(u) },
	"view":     func(u *Unit) { view(u); dead(u) },
	"order":    order,
	"optimize": Optimize,
}

// Each file of testdata has units before and after the pass of its name: "# why", the unit, "----",
// the unit, and an empty line.
func TestPassesRewriteUnitsAsTheScenariosSay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			got := rewritten(t, strings.TrimSpace(string(raw)))
			if *rewriteFiles {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			require.Equal(t, string(raw), got, "run the test with -rewrite and read the difference")
		})
	}
}

// rewritten is a scenario file with what the pass gives now.
func rewritten(t *testing.T, text string) string {
	name := strings.SplitN(filepath.Base(t.Name()), "_", 2)[0]
	pass, ok := passes[name]
	if name == "narrow" {
		pass, ok = func(u *Unit) { Optimize(u); narrow(u) }, true
	}
	require.True(t, ok, "the file is named for no pass")
	var now []string
	for _, block := range strings.Split(text, "\n\n") {
		before, _, _ := strings.Cut(block, "\n----")
		_, body, _ := strings.Cut(before, "\n") // the first line says why
		u := parseUnit(t, body)
		pass(u)
		require.NoError(t, u.Check(), before)
		now = append(now, before+"\n----\n"+u.String())
	}
	return strings.Join(now, "\n")
}
