package netns

import (
	"encoding/binary"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// wire is a host that the test plays.
type wire struct{ in, out chan []byte }

func newWire() *wire { return &wire{make(chan []byte), make(chan []byte, 1<<16)} }

func (w *wire) Read(b []byte) (int, error) {
	p, ok := <-w.in
	if !ok {
		return 0, io.EOF
	}
	return copy(b, p), nil
}

func (w *wire) Write(b []byte) (int, error) { w.out <- append([]byte(nil), b...); return len(b), nil }
func (w *wire) Close() error                { close(w.in); return nil }

var a, b = netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("10.7.0.2")

// packet is an IPv4 packet that carries a number.
func packet(to netip.Addr, n uint32) []byte {
	p := make([]byte, 24)
	p[0] = 0x45
	binary.BigEndian.PutUint16(p[2:], uint16(len(p)))
	dst := to.As4()
	copy(p[16:], dst[:])
	binary.BigEndian.PutUint32(p[20:], n)
	return p
}

func bubble(t *testing.T, run func(t *testing.T, s *Switch, from, to *wire)) {
	synctest.Test(t, func(t *testing.T) {
		s, from, to := NewSwitch(1), newWire(), newWire()
		s.Plug(a, from)
		s.Plug(b, to)
		run(t, s, from, to)
		s.Close()
	})
}

func TestPacketsArriveInOrderAfterTheDelay(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		s.Set(Path{Delay: 25 * time.Millisecond})
		start := time.Now()
		for i := range uint32(100) {
			from.in <- packet(b, i)
			time.Sleep(time.Millisecond)
		}
		for i := range uint32(100) {
			require.Equal(t, packet(b, i), <-to.out)
		}
		require.Equal(t, 99*time.Millisecond+25*time.Millisecond, time.Since(start).Round(time.Millisecond))
		require.Empty(t, from.out)
	})
}

func TestALinkCarriesNoMoreThanItsRate(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		s.Set(Path{Delay: 25 * time.Millisecond, Rate: 24 * 8 * 100}) // 100 packets in a second
		start := time.Now()
		for i := range uint32(100) {
			from.in <- packet(b, i)
		}
		for i := range uint32(100) {
			require.Equal(t, packet(b, i), <-to.out)
		}
		require.Equal(t, time.Second+25*time.Millisecond, time.Since(start).Round(time.Millisecond))
		from.in <- packet(b, 1) // the links are free again
		<-to.out
		require.Equal(t, time.Second+60*time.Millisecond, time.Since(start).Round(time.Millisecond))
	})
}

func TestAHostThatIsCutOffNeitherSendsNorHears(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		for _, host := range []netip.Addr{a, b} {
			s.CutOff(host, true)
			from.in <- packet(b, 1)
			to.in <- packet(a, 2)
			synctest.Wait()
			require.Empty(t, to.out)
			require.Empty(t, from.out)
			s.CutOff(host, false)
			from.in <- packet(b, 3)
			synctest.Wait()
			require.Equal(t, packet(b, 3), <-to.out)
		}
	})
}

func TestTheShareOfLostPacketsIsWhatWasAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		s.Set(Path{Loss: 0.05})
		for i := range uint32(20000) {
			from.in <- packet(b, i)
			synctest.Wait()
		}
		require.InDelta(t, 1000, s.Stats().Lost, 150)
		require.Len(t, to.out, 20000-s.Stats().Lost)
	})
}

func TestACutLosesWhatIsSentAndWhatIsOnItsWayUntilItHeals(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		s.Set(Path{Delay: time.Second})
		from.in <- packet(b, 1)
		synctest.Wait()
		s.Set(Path{Delay: time.Second, Cut: true})
		from.in <- packet(b, 2)
		time.Sleep(2 * time.Second)
		s.Set(Path{})
		from.in <- packet(b, 3)
		require.Equal(t, packet(b, 3), <-to.out)
		require.Empty(t, to.out)
	})
}

func TestWhatIsNoPacketOrForNobodyVanishes(t *testing.T) {
	bubble(t, func(t *testing.T, s *Switch, from, to *wire) {
		from.in <- nil
		from.in <- []byte("hello")
		from.in <- append(packet(b, 1), 0)
		from.in <- packet(netip.MustParseAddr("10.7.0.9"), 1)
		from.in <- packet(b, 2)
		require.Equal(t, packet(b, 2), <-to.out)
		require.Empty(t, to.out)
	})
}
