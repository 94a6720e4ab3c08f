//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
)

// ipcChild opens memory by a handle, doubles its first word and says so, and does it again when it
// is told that its owner wrote to it.
func ipcChild() (err error) {
	d, err := native.Open(0)
	if err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	raw, err := hex.DecodeString(line[:len(line)-1])
	if err != nil {
		return err
	}
	var h cuda.Handle
	copy(h[:], raw)
	at, err := d.Import(h)
	if err != nil {
		return err
	}
	again, err := d.Import(h)
	if err != nil || again != at {
		return fmt.Errorf("opened twice: %x and %x, %w", at, again, err)
	}
	s, err := d.Stream()
	if err != nil {
		return err
	}
	p, err := d.Pin(4)
	if err != nil {
		return err
	}
	for range 2 {
		if err := errors.Join(s.CopyOut(p, at), s.Sync()); err != nil {
			return err
		}
		p[0] *= 2
		if err := errors.Join(s.CopyIn(at, p), s.Sync()); err != nil {
			return err
		}
		fmt.Println("doubled")
		if _, err := in.ReadString('\n'); err != nil {
			return err
		}
	}
	if err := errors.Join(d.Unimport(at), d.Unimport(at)); err != nil {
		return err
	}
	if d.Unimport(at) == nil {
		return errors.New("what was closed could be closed again")
	}
	return errors.Join(s.Close(), d.Unpin(p), d.Close())
}

func TestTwoProcessesShareMemory(t *testing.T) {
	b := newBench(t)
	h, err := b.d.Export(b.at)
	require.NoError(t, err)
	_, err = b.d.Export(b.at + 8)
	require.Error(t, err, "a handle is of an allocation's beginning")
	_, err = b.d.Export(1)
	require.Error(t, err)
	_, err = b.d.Import(h)
	require.ErrorContains(t, err, "CUDA error 201", "memory of one's own")
	_, err = b.d.Import(cuda.Handle{})
	require.Error(t, err)

	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), "WEFT_TEST_CHILD=ipc")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	read := bufio.NewReader(out)
	said := func(want string) {
		line, err := read.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, line)
	}
	tell := func(text string) {
		_, err := io.WriteString(in, text+"\n")
		require.NoError(t, err)
	}
	write := func(v byte) {
		b.pinned[0] = v
		require.NoError(t, errors.Join(b.s.Zero(b.at, 256), b.s.CopyIn(b.at, b.pinned[:1]), b.s.Sync()))
	}
	write(3)
	tell(hex.EncodeToString(h[:]))
	said("doubled\n")
	require.EqualValues(t, 6, b.word(t))
	write(20)
	tell("")
	said("doubled\n")
	require.EqualValues(t, 40, b.word(t))
	tell("")
	require.NoError(t, cmd.Wait())
}
