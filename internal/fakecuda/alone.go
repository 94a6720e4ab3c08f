//go:build gpu && linux

package fakecuda

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Alone runs a test again in a process of its own, with more variables: in this one another test
// may have looked for a GPU already, and the driver is opened once. There it gives the fake, opened
// by [Open]; here nil, once the test has passed there.
func Alone(t testing.TB, env ...string) *Library {
	t.Helper()
	const alone = "WEFT_TEST_ALONE"
	if os.Getenv(alone) != "" {
		lib, err := Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return lib
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	again.Env = append(append(os.Environ(), alone+"=1"), env...)
	out, err := again.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in a process of its own: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return nil
}
