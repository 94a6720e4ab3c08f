package link

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestCallsAreCountedAndWhatTensorsNeedIsNot(t *testing.T) {
	leak.Check(t)
	id, err := identity.FromToken(transporttest.Token(), transporttest.Job, "w", time.Now)
	require.NoError(t, err)
	for _, lane := range []string{wire.LaneQUIC, wire.LaneBulk} {
		n, err := New(Config{Identity: id, Lanes: []string{lane}})
		require.NoError(t, err)
		l := transporttest.Listen(t, n)
		here, err := n.Dial(t.Context(), l.Addr())
		require.NoError(t, err)
		defer here.Close("")
		there, err := l.Accept(t.Context())
		require.NoError(t, err)
		defer there.Close("")
		go answerEmpty(there)
		calls := n.(*network).calls
		call := func(m *wire.Message) {
			s, err := here.Open(t.Context())
			require.NoError(t, err)
			defer s.Reset(nil)
			require.NoError(t, s.Send(t.Context(), m))
			_, err = s.Recv(t.Context(), nil)
			require.NoError(t, err)
		}
		for _, floats := range []int{1, 4 << 10} { // in the message
			m := transporttest.Floats(t, floats)
			m.End = true
			before := calls.Load()
			call(m)
			require.GreaterOrEqual(t, calls.Load()-before, uint64(4), "a question and an answer, at both ends")
			m.Release()
		}
		for _, floats := range []int{4<<10 + 1, 1 << 20} { // beside it
			m := transporttest.Floats(t, floats)
			m.End = true
			before := calls.Load()
			call(m)
			require.Equal(t, before, calls.Load(), "%s: neither question nor answer, and no word of the lane", lane)
			m.Release()
		}
	}
}

func TestASocketGivesTurnsAwayAfterTrainsWhileThereAreCalls(t *testing.T) {
	leak.Check(t)
	var calls atomic.Uint64
	open := func() *eagerUDP {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = udp.Close() })
		return eagerSocket(udp, nil, &calls).(*eagerUDP)
	}
	carry := func(here, there *eagerUDP, x sends) {
		_, _, err := here.WriteMsgUDP(x.bytes, x.words(families[0]), there.LocalAddr().(*net.UDPAddr))
		require.NoError(t, err)
		for left := len(x.datagrams(datagramMost)); left > 0; {
			n, err := there.ReadBatch(slots(batch, datagramMost, 128), 0)
			require.NoError(t, err)
			left -= n
		}
	}
	train, one := sends{bytes: make([]byte, 20*datagramMost), size: datagramMost}, sends{bytes: make([]byte, datagramMost)}
	here, there := open(), open()
	carry(here, there, train)
	carry(here, there, train)
	require.Zero(t, here.writes.Given()+there.reads.Given(), "no calls")
	calls.Add(1)
	carry(here, there, one)
	require.Zero(t, here.writes.Given(), "no train")
	require.Equal(t, 1, there.reads.Given(), "it has had a train before")
	calls.Add(1)
	carry(here, there, train)
	require.Equal(t, 1, here.writes.Given())
	here, there = open(), open()
	for range 3 {
		calls.Add(1)
		carry(here, there, one)
	}
	require.Zero(t, there.reads.Given(), "no train before")
}
