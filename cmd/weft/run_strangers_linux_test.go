package main

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

func TestAnotherUserOfTheHostReachesNothingOfAJob(t *testing.T) {
	for name, secret := range map[string]string{"with a secret": jobSecret, "without one": ""} {
		t.Run(name, func(t *testing.T) {
			at, done := proctest.Address(), filepath.Join(t.TempDir(), "done")
			l := &launchers{t: t, env: []string{"WEFT_TOKEN=" + secret}, args: []string{"--nnodes", "2", "--rdzv-endpoint", at, os.Args[0], "stay", done}}
			agents := []interface{ Wait() error }{l.launch(), l.launch()}
			l.Await(t, " of 2\n", 2)
			workers := regexp.MustCompile(`the workers' store is tcp://(\S+)`).FindStringSubmatch(l.String())[1]

			stranger := proctest.StartStranger(t, nil)
			for _, addr := range []string{at, workers} {
				var heard []byte
				require.NoError(t, stranger.Ask(t.Context(), "count", addr, &heard))
				require.Empty(t, heard)
			}
			l.Await(t, "uid 65534", 1)
			heard, err := countKeys(t.Context(), at)
			require.NoError(t, err)
			if secret != "" {
				require.Empty(t, heard, "the rendezvous takes no plain text of anybody")
				heard, err = countKeys(t.Context(), workers)
				require.NoError(t, err)
				require.Zero(t, binary.LittleEndian.Uint64(heard), "guests see nothing of the job")
			} else {
				require.NotZero(t, binary.LittleEndian.Uint64(heard))
			}
			require.NoError(t, os.WriteFile(done, nil, 0o600))
			for _, agent := range agents {
				require.NoError(t, agent.Wait(), l)
			}
		})
	}
}
