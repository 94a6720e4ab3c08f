package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/store"
)

// saveIn makes a test binary a job that saves in the folder that it names, from step 1 on, until it
// is killed.
const saveIn = "WEFT_TEST_CHECKPOINTS"

func TestMain(m *testing.M) {
	if path := os.Getenv(saveIn); path != "" {
		if err := saveForEver(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// filled is a tensor of a step, large enough that its file is written by several writes.
func filled(step int64) Piece {
	return Piece{Name: "w", DType: "U8", Shape: []int{64, 64 << 10}, Data: bytes.Repeat([]byte{byte(step)}, 64*64<<10)}
}

func saveForEver(path string) error {
	d, err := Open(path, Config{})
	if err != nil {
		return err
	}
	st := store.NewMemory()
	for step := int64(1); ; step++ {
		var parts []Part
		for rank := range 3 {
			parts = append(parts, Part{Step: step, Rank: rank, World: 3, Store: st, Pieces: []Piece{cut(filled(step), rank, 3)}})
		}
		if err := together(d, parts); err != nil {
			return err
		}
		fmt.Println(step)
	}
}

// left says how far the newest checkpoint has come.
func left(t *testing.T, path string) string {
	all, err := folders(path)
	require.NoError(t, err)
	if len(all) == 0 {
		return "nothing"
	}
	files, _ := os.ReadDir(filepath.Join(path, all[0].name)) // it may be gone by now
	half, parts, last := 0, 0, ""
	for _, f := range files {
		switch last = f.Name(); {
		case last == manifestName:
			return "whole"
		case last == manifestName+".tmp":
			return "half a manifest"
		case filepath.Ext(last) == ".tmp":
			half++
		default:
			parts++
		}
	}
	return fmt.Sprintf("%d parts and %d halves", parts, half)
}

func TestTheNewestWholeCheckpointLoadsWheneverTheJobWasKilled(t *testing.T) {
	path, r, fresh, found := t.TempDir(), rand.New(rand.NewPCG(1, 50)), true, map[string]int{}
	defer func() { t.Logf("what the kills left of the newest: %v", found) }()
	for kill := range soak.Cases(4) {
		c, cancel := context.WithCancel(t.Context())
		job := exec.CommandContext(c, os.Args[0])
		job.Env = append(os.Environ(), saveIn+"="+path)
		var stderr strings.Builder
		job.Stderr = &stderr
		out, err := job.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, job.Start())
		lines, told, some := bufio.NewScanner(out), int64(0), r.IntN(4)
		for told < int64(some) && lines.Scan() {
			told, err = strconv.ParseInt(lines.Text(), 10, 64)
			require.NoError(t, err)
		}
		// Then at any moment of the next one: after some looks at what is there, or when that is
		// what was drawn.
		moment := []string{"", "0 parts", "1 parts", "2 parts", "3 parts", "half"}[r.IntN(6)]
		for looks := r.IntN(300); looks > 0 && (moment == "" || !strings.HasPrefix(left(t, path), moment)); looks-- {
			_, err := folders(path)
			require.NoError(t, err)
		}
		cancel() // SIGKILL
		for lines.Scan() {
			told, err = strconv.ParseInt(lines.Text(), 10, 64)
			require.NoError(t, err)
		}
		_ = job.Wait()
		require.Empty(t, stderr.String())
		d, err := Open(path, Config{})
		require.NoError(t, err)
		found[left(t, path)]++
		k, err := d.Latest()
		if told == 0 && fresh && err != nil {
			require.ErrorIs(t, err, ErrNone)
			continue
		}
		require.NoError(t, err)
		if some > 0 {
			require.GreaterOrEqual(t, k.Step, told, "kill %d: a checkpoint that was whole is gone", kill)
		}
		x, err := k.Read("w")
		require.NoError(t, err)
		require.True(t, bytes.Equal(filled(k.Step).Data, x.Data))
		require.NoError(t, k.Close())
		if fresh = kill%2 == 1; fresh {
			require.NoError(t, os.RemoveAll(path))
		}
	}
}
