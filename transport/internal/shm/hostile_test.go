//go:build linux

package shm

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/lane"
	"github.com/weft-project/weft/transport/internal/meet"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func localEnv() lane.Env {
	return lane.Env{Say: func([]byte) error { return nil }, Suspect: func(error) {}, Count: &lane.Traffic{}}
}

// hostileLedger gives a channel and the ledger's other end, where the test plays the peer. broken
// counts suspicions.
func hostileLedger(t testing.TB) (h *channel, peer *net.UnixConn, broken *atomic.Int32) {
	here, there := transporttest.UnixPair(t)
	env := localEnv()
	broken = &atomic.Int32{}
	env.Suspect = func(error) { broken.Add(1) }
	h = newChannel(env, here, false)
	t.Cleanup(func() { h.Close(wire.ErrClosed); _ = there.Close() })
	return h, there, broken
}

// memfd makes a file of n bytes with these seals.
func memfd(t testing.TB, n int64, seals int) *os.File {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	require.NoError(t, unix.Ftruncate(fd, n))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

func tell(t testing.TB, peer *net.UnixConn, number uint32, size uint64, f *os.File) {
	_, _, err := peer.WriteMsgUnix(ledgerEntry{kind: ledgerSegment, number: number, value: size}.append(nil), unix.UnixRights(int(f.Fd())), nil)
	require.NoError(t, err)
}

func TestASegmentThatCouldVanishIsRefused(t *testing.T) {
	leak.Check(t)
	plain, err := os.Create(t.TempDir() + "/plain")
	require.NoError(t, err)
	defer plain.Close()
	require.NoError(t, plain.Truncate(1<<16))
	for name, bad := range map[string]struct {
		f      *os.File
		number uint32
		size   uint64
	}{
		"not sealed":       {memfd(t, 1<<16, unix.F_SEAL_SHRINK), 1, 1 << 16},
		"of another size":  {memfd(t, 1<<16, sealed), 1, 1 << 17},
		"empty":            {memfd(t, 0, sealed), 1, 0},
		"absurd":           {memfd(t, 1<<43, sealed), 1, 1 << 43},
		"a file":           {plain, 1, 1 << 16},
		"number not next":  {memfd(t, 1<<16, sealed), 7, 1 << 16},
		"number 0 is none": {memfd(t, 1<<16, sealed), 0, 1 << 16},
	} {
		h, peer, broken := hostileLedger(t)
		tell(t, peer, bad.number, bad.size, bad.f)
		require.Eventually(t, func() bool { return broken.Load() == 1 }, 10*time.Second, time.Millisecond, name)
		require.False(t, h.Takes(nil, 0), name)
		_, err := h.Begin(nil)
		require.Error(t, err, name)
	}
}

// oneTensor is what a frame says of a tensor of n bytes.
func oneTensor(n int) []wire.Tensor {
	return []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{n / 4}}}
}

func TestATicketBeyondItsSegmentIsABadFrame(t *testing.T) {
	leak.Check(t)
	h, peer, _ := hostileLedger(t)
	tell(t, peer, 1, 1<<16, memfd(t, 1<<16, sealed))
	good := ticket{first: 1, loans: 1, spots: []spot{{1, 64}}}
	ts := oneTensor(1<<16 - 64)
	require.NoError(t, h.Fetch(t.Context(), good.append(nil), ts, nil))
	require.ErrorIs(t, h.Fetch(t.Context(), good.append(nil), oneTensor(4), nil), wire.ErrFrame, "a second time")
	require.NoError(t, ts[0].Buf.Release())
	for name, bad := range map[string]ticket{
		"too long":         {first: 2, loans: 1, spots: []spot{{1, 128}}},
		"far away":         {first: 2, loans: 1, spots: []spot{{1, 1 << 60}}},
		"two for one":      {first: 2, loans: 2, spots: []spot{{1, 0}, {1, 0}}},
		"no segment 0":     {first: 2, loans: 1, spots: []spot{{0, 0}}},
		"table beyond":     {first: 2, loans: 2, table: spot{1, 65472}, size: 100},
		"table of nothing": {first: 2, loans: 2, table: spot{1, 0}, size: 100},
	} {
		ts := oneTensor(1<<16 - 64)
		require.ErrorIs(t, h.Fetch(t.Context(), bad.append(nil), ts, nil), wire.ErrFrame, name)
		require.Nil(t, ts[0].Buf)
	}
	c, cancel := context.WithCancel(t.Context())
	cancel()
	never := ticket{first: 9, loans: 1, spots: []spot{{8, 0}}}
	require.ErrorIs(t, h.Fetch(c, never.append(nil), oneTensor(64), nil), context.Canceled)
	require.NoError(t, peer.CloseWrite())
	require.ErrorIs(t, h.Fetch(t.Context(), never.append(nil), oneTensor(64), nil), wire.ErrFrame, "the ledger has ended")
}

func TestATicketThatWasGivenUpIsNotFetchedAfterwards(t *testing.T) {
	leak.Check(t)
	a, b := transporttest.UnixPair(t)
	toB := make(chan []byte, 1)
	env := localEnv()
	env.Say = func(w []byte) error { toB <- append([]byte(nil), w...); return nil }
	sender, receiver := newChannel(env, a, false), newChannel(localEnv(), b, false)
	defer receiver.Close(wire.ErrClosed)
	defer sender.Close(wire.ErrClosed)
	x, err := device.Host().Alloc(1 << 20)
	require.NoError(t, err)
	ts := []wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{1 << 18}, Buf: x}}
	for _, fetched := range []bool{false, true} {
		tr, err := sender.Begin(ts)
		require.NoError(t, err)
		require.False(t, x.Exclusive())
		got := oneTensor(1 << 20)
		if fetched {
			require.NoError(t, receiver.Fetch(t.Context(), tr.Ticket(), got, nil))
		}
		tr.Abandon()
		require.NoError(t, receiver.Control(<-toB))
		if fetched {
			require.False(t, x.Exclusive(), "it is in use")
			require.NoError(t, got[0].Buf.Release())
		}
		require.Eventually(t, x.Exclusive, 10*time.Second, time.Millisecond)
		if !fetched {
			require.ErrorIs(t, receiver.Fetch(t.Context(), tr.Ticket(), got, nil), wire.ErrReset)
		}
	}
	require.NoError(t, x.Release())
}

func TestALaneThatCannotBeSaysWhy(t *testing.T) {
	leak.Check(t)
	maker := New(false)
	s, err := maker.Serve(nil)
	require.NoError(t, err)
	defer s.Close()
	_, _, err = s.Expect(lane.Peer{}, []byte("0b5d7d2e-another-boot"))
	require.ErrorContains(t, err, "another host")
	_, err = maker.Join(t.Context(), lane.Peer{}, append(make([]byte, meet.KeySize), meet.Prefix+"nobody"...))
	require.ErrorIs(t, err, unix.ECONNREFUSED)
	require.ErrorContains(t, err, "not in this network namespace")
	for _, bad := range []string{"", "short", "0123456789abcdef/tmp/a-file", "0123456789abcdef@other"} {
		_, err = maker.Join(t.Context(), lane.Peer{}, []byte(bad))
		require.ErrorIs(t, err, wire.ErrFrame)
	}
}

func TestWhoDoesNotKnowTheSecretGetsNoConnection(t *testing.T) {
	leak.Check(t)
	maker := New(false)
	offer, err := maker.Offer()
	require.NoError(t, err)
	s, err := maker.Serve(nil)
	require.NoError(t, err)
	defer s.Close()
	answer, wait, err := s.Expect(lane.Peer{Secret: [32]byte{1}}, offer)
	require.NoError(t, err)
	_, err = maker.Join(t.Context(), lane.Peer{Secret: [32]byte{2}}, answer)
	require.Error(t, err)
	for range meet.MaxGreeting + 10 { // who says nothing keeps nobody out for long
		conn, err := net.Dial("unix", string(answer[meet.KeySize:]))
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	}
	c, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var end *lane.End
	require.Eventually(t, func() bool {
		end, err = maker.Join(c, lane.Peer{Secret: [32]byte{1}}, answer)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	there, err := wait(c)
	require.NoError(t, err)
	end.Drop()
	there.Drop()
	_, wait, err = s.Expect(lane.Peer{}, offer)
	require.NoError(t, err)
	c, cancel = context.WithCancel(t.Context())
	cancel()
	_, err = wait(c)
	require.Error(t, err)
}

func FuzzALocalTicket(f *testing.F) {
	f.Add((&ticket{first: 1, loans: 2, spots: []spot{{1, 64}, {2, 128}}}).append(nil), 2)
	f.Add((&ticket{first: 1 << 40, loans: 200, table: spot{1, 0}, size: 900}).append(nil), 199)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		tk, err := parseTicket(b)
		if err != nil {
			require.ErrorIs(t, err, wire.ErrFrame)
		} else {
			again, err := parseTicket(tk.append(nil))
			require.NoError(t, err)
			require.Equal(t, tk, again)
			require.LessOrEqual(t, tk.loans, loansMost)
			require.LessOrEqual(t, len(tk.spots), tk.loans)
		}
		spots, err := parseSpots(b, n&loansMost)
		if err == nil {
			require.Len(t, spots, n&loansMost)
		}
	})
}

func FuzzALocalLedgerAndItsTickets(f *testing.F) {
	back := ledgerEntry{kind: ledgerBack, number: 3, value: 1}.append(nil)
	f.Add(back, (&ticket{first: 1, loans: 1, spots: []spot{{1, 64}}}).append(nil), 1)
	f.Add(ledgerEntry{kind: ledgerSegment, number: 1, value: 1 << 16}.append(nil), []byte{}, 0)
	f.Add(append(ledgerEntry{kind: ledgerRetire, number: 1}.append(nil), back...), []byte{1, 1, 0, 1, 1}, 1)
	f.Fuzz(func(t *testing.T, ledger, ticket []byte, files int) {
		h, peer, _ := hostileLedger(t)
		x, err := device.Host().Alloc(device.SharedFrom)
		require.NoError(t, err)
		_, err = h.Begin([]wire.Tensor{{Dtype: device.Float32, Shape: device.Shape{device.SharedFrom / 4}, Buf: x}})
		require.NoError(t, err)
		if files&1 == 1 {
			tell(t, peer, 1, 1<<16, memfd(t, 1<<16, sealed))
		}
		if len(ledger) > 0 {
			_, err = peer.Write(ledger)
			require.NoError(t, err)
		}
		require.NoError(t, peer.CloseWrite())
		ts := oneTensor(1 << 12)
		if err := h.Fetch(t.Context(), ticket, ts, nil); err == nil {
			require.NoError(t, ts[0].Buf.Release())
		} else {
			require.Nil(t, ts[0].Buf)
		}
		_ = h.Control(ticket)
		h.Refuse(ticket)
		require.Eventually(t, x.Exclusive, 10*time.Second, 100*time.Microsecond, "all loans end with the peer")
		require.NoError(t, x.Release())
	})
}
