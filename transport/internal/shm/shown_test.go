//go:build linux

package shm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/internal/soak"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

// nextEntry reads the ledger as a peer that keeps what it gets: the next entry, and its file where
// it has one.
func nextEntry(t testing.TB, peer *net.UnixConn) (e ledgerEntry) {
	b, oob := make([]byte, ledgerSize), make([]byte, unix.CmsgSpace(4))
	n, on, _, _, err := peer.ReadMsgUnix(b, oob)
	require.NoError(t, err)
	require.Equal(t, ledgerSize, n)
	fds, err := rights(oob[:on])
	require.NoError(t, err)
	e.kind, e.number = binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	if len(fds) > 0 {
		e.file = os.NewFile(uintptr(fds[0]), "segment")
		t.Cleanup(func() { _ = e.file.Close() })
	}
	return e
}

// told reads of a segment.
func told(t testing.TB, peer *net.UnixConn) *os.File {
	e := nextEntry(t, peer)
	require.Equal(t, uint32(ledgerSegment), e.kind)
	require.NotNil(t, e.file)
	return e.file
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

func lendOne(t testing.TB, h *channel, b *device.Buffer) ticket {
	tr, err := h.Begin([]wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{b.Len()}, Buf: b}})
	require.NoError(t, err)
	ticket, err := parseTicket(tr.Ticket())
	require.NoError(t, err)
	return ticket
}

const unlent, lent = 0xA5, 0x11

func TestAPeerCannotWriteWhatItWasLent(t *testing.T) {
	leak.Check(t)
	h, peer, _ := hostileLedger(t)
	x := filled(t, 1<<20, lent)
	lendOne(t, h, x)
	f := told(t, peer)
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
			mem[0] = unlent
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
	_, err := unix.Pwrite(fd, []byte{unlent}, 0)
	return err
}

func TestAPeerSeesNothingThatItWasNotLent(t *testing.T) {
	leak.Check(t)
	h, peer, _ := hostileLedger(t)
	var mine []*device.Buffer
	for range 4 { // before it, and behind it
		mine = append(mine, filled(t, 1<<20, unlent), filled(t, 1<<20, lent))
	}
	for i := 1; i < len(mine); i += 2 {
		lendOne(t, h, mine[i])
		f := told(t, peer)
		seen := all(t, f)
		require.Equal(t, 1<<20, bytes.Count(seen, []byte{lent}))
		require.Zero(t, bytes.Count(seen, []byte{unlent}))
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
			old = append(old, filled(t, 1<<20, unlent), filled(t, device.SharedFrom, unlent))
		}
		for _, b := range old {
			require.NoError(t, b.Release())
		}
		x := filled(t, n, lent)
		lendOne(t, h, x)
		f := told(t, peer)
		seen := all(t, f)
		require.Equal(t, n, bytes.Count(seen, []byte{lent}))
		require.Zero(t, bytes.Count(seen, []byte{unlent}), "of a tensor of %d bytes", n)
		require.NoError(t, x.Release())
	}
}

// A peer that keeps all that it was ever told of sees nothing but what it was lent, whatever the
// owner does.
func TestAPeerOfALinkThatLendsCopiesNeverSeesAnythingElse(t *testing.T) {
	leak.Check(t)
	for seed := range uint64(soak.Cases(20)) {
		spied := watchALender(t, seed, true)
		require.Zero(t, spied, "seed %d", seed)
	}
}

// What Config.LendCopies says of links that do not: the test above can fail.
func TestAPeerThatIsLentMemoryAsItLiesSeesWhatIsThereLater(t *testing.T) {
	leak.Check(t)
	spied := 0
	for seed := range uint64(soak.Cases(20)) {
		spied += watchALender(t, seed, false)
	}
	require.Positive(t, spied)
}

// watchALender has a worker allocate, write, lend and release at random, and says how many looks of
// its peer found what was not lent.
func watchALender(t testing.TB, seed uint64, copies bool) (spied int) {
	r := rand.New(rand.NewPCG(seed, 18))
	here, there := transporttest.UnixPair(t)
	h := newChannel(localEnv(), here, copies)
	defer h.Close(wire.ErrClosed)
	var seen [][]byte
	heard := uint32(0)
	listen := func(last uint32) { // until the peer was told of that segment
		for heard < last {
			if e := nextEntry(t, there); e.file != nil {
				heard, seen = e.number, append(seen, all(t, e.file))
			}
		}
	}
	var mine []*device.Buffer
	for range 40 {
		switch k := r.IntN(4); {
		case k == 0 && len(mine) > 0:
			require.NoError(t, mine[0].Release())
			mine = mine[1:]
		case k == 1 && len(mine) > 0: // another step of the same values, which nobody was lent
			b := mine[r.IntN(len(mine))]
			if b.Exclusive() {
				require.NoError(t, device.Host().Upload(b, 0, bytes.Repeat([]byte{unlent}, b.Len())))
			}
		case k == 2:
			mine = append(mine, filled(t, 1+r.IntN(300<<10), unlent))
		default:
			b := filled(t, 1+r.IntN(300<<10), lent)
			mine = append(mine, b)
			ticket := lendOne(t, h, b)
			listen(ticket.spots[0].segment)
			if r.IntN(3) > 0 {
				back(t, there, ticket)
				require.Eventually(t, func() bool { return !isLent(h, ticket.first) }, 10*time.Second, 10*time.Microsecond)
			}
		}
		for _, mem := range seen {
			if bytes.IndexByte(mem, unlent) >= 0 {
				spied++
			}
		}
	}
	for _, b := range mine {
		require.NoError(t, b.Release())
	}
	return spied
}

// back gives loans back, as a peer that may lie does.
func back(t testing.TB, peer *net.UnixConn, ticket ticket) {
	_, err := peer.Write(ledgerEntry{kind: ledgerBack, number: uint32(ticket.loans), value: ticket.first}.append(nil))
	require.NoError(t, err)
}

// isLent says whether a loan has not ended.
func isLent(h *channel, loan uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.loans[loan] != nil
}

func TestThePeerForgetsMemoryThatIsNoMore(t *testing.T) {
	leak.Check(t)
	sender, receiver := lenderAndBorrower(t)
	for range 5 {
		x := filled(t, 1<<20, lent)
		f, err := x.Show(true) // so that it is not used again
		require.NoError(t, err)
		require.NoError(t, f.Close())
		got := lentAndFetched(t, sender, receiver, x)
		require.NoError(t, x.Release())
		require.NoError(t, got.Release())
		require.Eventually(t, func() bool { return mapped(receiver) == 0 && known(sender) == 0 }, 10*time.Second, time.Millisecond)
	}
}

func TestAPeerIsToldOfSoManySegmentsAtATimeAndThenOfOthersInstead(t *testing.T) {
	leak.Check(t)
	sender, receiver := lenderAndBorrower(t)
	var mine, kept []*device.Buffer
	for range maxSegments {
		mine = append(mine, filled(t, device.SharedFrom, lent))
		kept = append(kept, lentAndFetched(t, sender, receiver, mine[len(mine)-1]))
	}
	more := filled(t, device.SharedFrom, lent)
	_, err := sender.Begin([]wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{device.SharedFrom / 4}, Buf: more}})
	require.ErrorContains(t, err, "more than the local lane allows", "another lane takes it")
	require.True(t, more.Exclusive())
	for _, b := range kept[maxSegments/2:] { // some come back, so others can go
		require.NoError(t, b.Release())
	}
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(mine[maxSegments/2:], func(b *device.Buffer) bool { return !b.Exclusive() })
	}, 10*time.Second, time.Millisecond)
	kept = kept[:maxSegments/2]
	for range 10 {
		mine = append(mine, filled(t, device.SharedFrom, lent))
		kept = append(kept, lentAndFetched(t, sender, receiver, mine[len(mine)-1]))
	}
	require.Equal(t, maxSegments, known(sender))
	require.LessOrEqual(t, mapped(receiver), maxSegments)
	for _, b := range kept {
		mem, err := b.Host()
		require.NoError(t, err)
		require.Equal(t, len(mem), bytes.Count(mem, []byte{lent}))
		require.NoError(t, b.Release())
	}
	for _, b := range append(mine, more) {
		require.NoError(t, b.Release())
	}
}

func lenderAndBorrower(t testing.TB) (sender, receiver *channel) {
	a, b := transporttest.UnixPair(t)
	sender, receiver = newChannel(localEnv(), a, false), newChannel(localEnv(), b, false)
	t.Cleanup(func() { sender.Close(wire.ErrClosed); receiver.Close(wire.ErrClosed) })
	return sender, receiver
}

func lentAndFetched(t testing.TB, sender, receiver *channel, x *device.Buffer) *device.Buffer {
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{x.Len() / 4}, Buf: x}}
	tr, err := sender.Begin(ts)
	require.NoError(t, err)
	got := oneTensor(x.Len())
	require.NoError(t, receiver.Fetch(t.Context(), tr.Ticket(), got, nil))
	return got[0].Buf
}

func mapped(h *channel) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.maps)
}

func known(h *channel) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.told)
}
