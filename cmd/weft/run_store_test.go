package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkersMeetInAStoreWhoseGuestsSeeNothingOfThem(t *testing.T) {
	t.Parallel()
	for plain, want := range map[string]string{"never": "plain refused", "auto": "plain sees 0 keys", "always": "plain sees 0 keys"} {
		code, stdout, stderr := weft(t, "run", "--nproc-per-node", "2", "--store-plain", plain, "--no-prefix", os.Args[0], "join")
		require.Zero(t, code, stderr)
		require.Equal(t, want+"\n"+want+"\n", stdout, plain)
	}
}
