package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// contacted makes a folder as one is on a machine with a GPU: contact.sh, and a bundle with a
// script in the place of gpucheck.
func contacted(t *testing.T, gpucheck string) (dir string) {
	dir = t.TempDir()
	script, err := os.ReadFile("contact.sh")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "contact.sh"), script, 0o600))
	scripts := tests("echo PASS")
	scripts["gpucheck"] = gpucheck
	from := filepath.Join(t.TempDir(), "gpucheck")
	require.NoError(t, os.Rename(bundle(t, scripts), from))
	out, err := exec.CommandContext(t.Context(), "tar", "-C", filepath.Dir(from), "-cJf", filepath.Join(dir, "gpucheck.tar.xz"), "gpucheck").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// contact runs contact.sh in a folder that is not its own.
func contact(t *testing.T, dir string, env string, args ...string) (code int, said string) {
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{filepath.Join(dir, "contact.sh")}, args...)...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), env)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestContactKnowsItsArgumentsByTheirForm(t *testing.T) {
	dir := contacted(t, `echo "said: $@"`)
	out := filepath.Join(t.TempDir(), "a folder")
	for _, k := range []struct {
		args []string
		part string
	}{
		{[]string{out}, "first"}, {[]string{out, "second"}, "second"}, {nil, "first"}, {[]string{"second"}, "second"},
		{[]string{filepath.Join(dir, "gpucheck.tar.xz"), "first"}, "first"}, {[]string{filepath.Join(dir, "gpucheck.tar.xz"), out, "second"}, "second"},
	} {
		code, said := contact(t, dir, "OUT="+out, append(k.args, "-device", "interpreter")...)
		require.Zero(t, code, said)
		require.Regexp(t, `^said: -out `+out+` -part `+k.part+` -budget 5[0-9]{2}s -device interpreter\n$`, said)
		require.Equal(t, "unpacking", resultIn(t, out).State)
	}
	below := filepath.Join(out, "first")
	code, said := contact(t, dir, "OUT="+out, below)
	require.Zero(t, code, said)
	require.Contains(t, said, "-out "+below+" -part first")
}

func TestContactThatIsEndedWhileItUnpacksSaysSo(t *testing.T) {
	dir := contacted(t, "true")
	alive := newAlive(t)
	tools := bundle(t, map[string]string{"tar": alive.script + "sleep 600 & read -r a b c above rest </proc/$PPID/stat; kill -TERM $above; sleep 600"})
	out := t.TempDir()
	code, said := contact(t, dir, "PATH="+tools+":/usr/bin:/bin", out)
	require.Equal(t, 1, code, said)
	require.Equal(t, "ended by SIGTERM while unpacking", resultIn(t, out).State)
	alive.none(t)
}

func TestContactTellsInItsResultsThatItCannotBegin(t *testing.T) {
	dir := contacted(t, "echo runs all the same")
	out := t.TempDir()
	bad := filepath.Join(dir, "bad.tar.xz")
	require.NoError(t, os.WriteFile(bad, []byte("no archive"), 0o600))
	for _, k := range []struct {
		bundle, state string
	}{{bad, "the bundle cannot be unpacked"}, {filepath.Join(dir, "none.tar.gz"), "there is no bundle"}} {
		code, said := contact(t, dir, "OUT=", k.bundle, out)
		require.Equal(t, 4, code)
		require.Contains(t, said, k.bundle)
		require.Equal(t, k.state, resultIn(t, out).State)
		page, err := os.ReadFile(filepath.Join(out, "result.md"))
		require.NoError(t, err)
		require.Contains(t, string(page), k.state)
	}
	code, said := contact(t, dir, "OUT=", "first")
	require.Equal(t, 2, code)
	require.Contains(t, said, "no folder for results")
	code, said = contact(t, dir, "OUT=", filepath.Join(bad, "out"))
	require.Zero(t, code)
	require.Contains(t, said, "nothing can be written")
	require.Contains(t, said, "runs all the same")
}

func TestContactRefusesWordsThatItDoesNotExpect(t *testing.T) {
	dir := contacted(t, "echo runs all the same")
	bundled, out, other := filepath.Join(dir, "gpucheck.tar.xz"), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "other")
	for _, k := range []struct {
		env  string
		args []string
		says string
	}{
		{"", []string{out, "frist"}, "unexpected word frist"},
		{"", []string{bundled, out, "second", "frist"}, "unexpected word frist"},
		{"", []string{out, other, "second"}, "unexpected word " + other},
		{out, []string{"frist"}, "unexpected word frist"},
		{"", []string{out, "first", "second"}, "unexpected word second"},
		{"", []string{bundled, out, "b.tar.gz"}, "unexpected word b.tar.gz"},
		{"", []string{"gpucheck.zip", out}, "gpucheck.zip is no bundle, which is a .tar.xz or .tar.gz"},
	} {
		code, said := contact(t, dir, "OUT="+k.env, k.args...)
		require.Equal(t, 2, code, "%v: %s", k.args, said)
		require.Contains(t, said, k.says)
		require.Contains(t, said, "expected contact.sh [BUNDLE] OUT [first|second] [FLAG…]")
		require.NoDirExists(t, out, "%v", k.args)
		require.NoDirExists(t, other, "%v", k.args)
	}
}

func TestContactsHelpNamesTheFlags(t *testing.T) {
	dir := contacted(t, "echo runs all the same")
	code, said := contact(t, dir, "OUT=", "-h")
	require.Zero(t, code, said)
	for _, flag := range []string{"-device", "-only", "-rounds", "-budget"} {
		require.Contains(t, said, flag+" ")
	}
	require.NotContains(t, said, "runs all the same")
}
