//go:build linux

package transport

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
)

// told reads the ledger as a peer that keeps what it gets: the file of the next segment that it is told of, and its number.
func told(t testing.TB, peer *net.UnixConn) (*os.File, uint32) {
	b, oob := make([]byte, ledgerSize), make([]byte, unix.CmsgSpace(4))
	n, on, _, _, err := peer.ReadMsgUnix(b, oob)
	require.NoError(t, err)
	require.Equal(t, ledgerSize, n)
	require.Equal(t, uint32(ledgerSegment), binary.LittleEndian.Uint32(b))
	fds, err := rights(oob[:on])
	require.NoError(t, err)
	require.Len(t, fds, 1)
	f := os.NewFile(uintptr(fds[0]), "segment")
	t.Cleanup(func() { _ = f.Close() })
	return f, binary.LittleEndian.Uint32(b[4:])
}

// all is what the peer sees of a segment.
func all(t testing.TB, f *os.File) []byte {
	st, err := f.Stat()
	require.NoError(t, err)
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	return mem
}

// filled is a tensor's buffer in which one byte stands everywhere.
func filled(t testing.TB, n int, mark byte) *device.Buffer {
	b, err := device.Host().Alloc(n)
	require.NoError(t, err)
	require.NoError(t, device.Host().Upload(b, 0, bytes.Repeat([]byte{mark}, n)))
	return b
}

func lendOne(t testing.TB, h *localHauler, b *device.Buffer) localTicket {
	tr, err := h.begin([]Tensor{{Dtype: device.Float32, Shape: device.Shape{b.Len()}, Buf: b}})
	require.NoError(t, err)
	ticket, err := parseLocalTicket(tr.ticket())
	require.NoError(t, err)
	return ticket
}

const secret, lent = 0xA5, 0x11

func TestAPeerCannotWriteWhatItWasLent(t *testing.T) {
	leak.Check(t)
	h, peer, _ := hostileLedger(t)
	x := filled(t, 1<<20, lent)
	lendOne(t, h, x)
	f, _ := told(t, peer)
	fd := int(f.Fd())
	st, err := f.Stat()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), st.Mode(), "nobody else may open it at all")
	_ = unix.Fchmod(fd, 0o777) // who belongs to the same user may
	tries := map[string]func() error{"ours": func() error { return writeTo(fd) }}
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	defer unix.Close(again)
	tries["opened anew"] = func() error { return writeTo(again) }
	tries["resized"] = func() error { return unix.Ftruncate(again, 0) }
	tries["a hole"] = func() error {
		return unix.Fallocate(again, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<20)
	}
	tries["mapped for writing"] = func() error {
		mem, err := unix.Mmap(again, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err == nil {
			mem[0] = secret
			_ = unix.Munmap(mem)
		}
		return err
	}
	tries["mapped for reading, and then for writing"] = func() error {
		mem, err := unix.Mmap(again, 0, 1<<20, unix.PROT_READ, unix.MAP_SHARED)
		require.NoError(t, err)
		defer unix.Munmap(mem)
		return unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE)
	}
	for how, try := range tries {
		require.Error(t, try(), how)
	}
	mem, err := x.Host()
	require.NoError(t, err)
	require.Equal(t, len(mem), bytes.Count(mem, []byte{lent}))
	mem[7]++ // but its owner can
	require.Equal(t, mem[7], all(t, f)[7])
	require.NoError(t, x.Release())
}

func writeTo(fd int) error {
	_, err := unix.Pwrite(fd, []byte{secret}, 0)
	return err
}

func TestAPeerSeesNothingThatItWasNotLent(t *testing.T) {
	leak.Check(t)
	h, peer, _ := hostileLedger(t)
	var mine []*device.Buffer
	for range 4 { // before it, and behind it
		mine = append(mine, filled(t, 1<<20, secret), filled(t, 1<<20, lent))
	}
	for i := 1; i < len(mine); i += 2 {
		lendOne(t, h, mine[i])
		f, _ := told(t, peer)
		seen := all(t, f)
		require.Equal(t, 1<<20, bytes.Count(seen, []byte{lent}))
		require.Zero(t, bytes.Count(seen, []byte{secret}))
	}
	for _, b := range mine {
		require.NoError(t, b.Release())
	}
}

// A block is up to a third larger than its tensor, and was another's before.
func TestAPeerSeesNothingOfWhatLayWhereATensorLies(t *testing.T) {
	leak.Check(t)
	for _, n := range []int{
		800 << 10, 800<<10 + 1, 1<<20 - 1, // of a block of 1 MiB
		100, 40 << 10, // copied to a block of SharedFrom
	} {
		h, peer, _ := hostileLedger(t)
		var old []*device.Buffer
		for range 10 {
			old = append(old, filled(t, 1<<20, secret), filled(t, device.SharedFrom, secret))
		}
		for _, b := range old {
			require.NoError(t, b.Release())
		}
		x := filled(t, n, lent)
		lendOne(t, h, x)
		f, _ := told(t, peer)
		seen := all(t, f)
		require.Equal(t, n, bytes.Count(seen, []byte{lent}))
		require.Zero(t, bytes.Count(seen, []byte{secret}), "of a tensor of %d bytes", n)
		require.NoError(t, x.Release())
	}
}
