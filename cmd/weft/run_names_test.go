package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/disttest/hostile"
)

func TestACertificateThatNamesTooFewWorkersIsFoundBeforeAnyStarts(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	started := filepath.Join(t.TempDir(), "started")
	touch := filepath.Join(t.TempDir(), "touch")
	require.NoError(t, os.WriteFile(touch, []byte("#!/bin/sh\n: >"+started+"\n"), 0o700))
	for _, c := range []struct {
		uris  []string
		flags []string
		want  string // of the error; "" where the workers are started
	}{
		{[]string{"worker0", "worker1?rank=1"}, []string{"--nproc-per-node", "3"},
			"--nproc-per-node 3: each worker comes under a name of its own, and $x names 2 of the job job7 (worker0, worker1): make it with URI:weft://job7/worker2, too"},
		{[]string{"worker1"}, []string{"--nproc-per-node", "3"}, "URI:weft://job7/worker0,URI:weft://job7/worker2, too"},
		{[]string{"worker0", "worker0?rank=0"}, []string{"--nproc-per-node", "2"}, "URI:weft://job7/worker1, too"},
		{[]string{"worker4"}, []string{"--nproc-per-node", "2", "--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:29400"}, "(worker4): make it with the names of all that this machine starts"},
		{[]string{"worker0", "worker1", "worker2"}, []string{"--nproc-per-node", "3"}, ""},
		{[]string{"server", "worker1", "worker2"}, []string{"--nproc-per-node", "3"}, ""},
		{[]string{"node0"}, []string{"--nproc-per-node", "3"}, ""}, // none of Weft's own workers, perhaps
	} {
		uris := []string{}
		for _, name := range c.uris {
			uris = append(uris, "weft://job7/"+name)
		}
		f, err := hostile.Certificates(t.TempDir(), uris...)
		require.NoError(t, err)
		require.NoError(t, os.RemoveAll(started))
		args := append([]string{"run", "--rdzv-id", "job7", "--ca", f.CA, "--cert", f.Cert, "--key", f.Key}, c.flags...)
		code, _, stderr := weft(t, append(args, touch)...)
		if c.want == "" {
			require.Zero(t, code, "%v: %s", c.uris, stderr)
			require.FileExists(t, started)
			continue
		}
		require.Equal(t, cli.CodeUsage, code, "%v: %s", c.uris, stderr)
		require.Contains(t, stderr, os.Expand(c.want, func(string) string { return f.Cert }))
		require.NoFileExists(t, started)
	}
}

func TestAMissingJobsIDIsNamedAsWhatIsMissing(t *testing.T) {
	t.Setenv("WEFT_TOKEN", "")
	t.Setenv("TORCHELASTIC_RUN_ID", "")
	f, flags := certificatesFor(t, "job7")
	for command := range asking() {
		code, _, stderr := asks(t, command, flags...)
		require.Equal(t, cli.CodeUsage, code, "%s: %s", command, stderr)
		require.Contains(t, stderr, "--ca, --cert and --key: the job's id is missing: "+f.Cert+" is for the job job7: give --rdzv-id job7", command)
		require.NotContains(t, stderr, `"none"`, command)
		_, _, stderr = asks(t, command, append(flags, "--rdzv-id", "job8")...)
		require.Contains(t, stderr, `is not for the job "job8", but has`, command)
		_, _, stderr = asks(t, command, append(flags, "--rdzv-id", "job7")...)
		require.NotContains(t, stderr, "--ca", command)
	}
}
