package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

// pseudoterminal is a terminal, and the end at which somebody sits.
func pseudoterminal(t *testing.T) (sits, terminal *os.File) {
	sits, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sits.Close() })
	raw, err := sits.SyscallConn()
	require.NoError(t, err)
	var number int
	require.NoError(t, raw.Control(func(fd uintptr) {
		if err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	}))
	require.NoError(t, err)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	return sits, terminal
}

func TestWhatIsTypedReachesLocalRankZeroWhereItIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		sits, terminal := pseudoterminal(t)
		cmd := exec.Command(os.Args[0], "run", fmt.Sprintf("--stdin=%t", asked), "--nproc-per-node", "2", os.Args[0], "ask")
		cmd.Env = append(os.Environ(), "WEFT_TEST_PART=weft", "GORACE=atexit_sleep_ms=0")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // its foreground is weft's
		require.NoError(t, cmd.Start())
		require.NoError(t, terminal.Close())
		out := &proctest.Output{}
		read := make(chan struct{})
		go func() {
			defer close(read)
			b := make([]byte, 1024)
			for {
				n, err := sits.Read(b)
				_, _ = out.Write(b[:n])
				if err != nil { // EIO, when nobody has the terminal any more
					return
				}
			}
		}()
		out.Await(t, `[1] read ""`, 1)
		if asked {
			out.Await(t, "[0] (Pdb) ", 1) // a prompt without a line's end
			_, err := sits.WriteString("continue\n")
			require.NoError(t, err)
			out.Await(t, `read "continue\n"`, 1)
		} else {
			out.Await(t, `[0] (Pdb) read ""`, 1)
		}
		require.NoError(t, cmd.Wait(), out.String())
		<-read
	}
}
