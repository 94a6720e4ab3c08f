package transport

import (
	"net"
	"testing"
	"time"

	"github.com/weft-project/weft/transport/internal/transporttest"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

func TestAHostsHandshakesAreBoundedAndItsWorkersMayAllJoinAtOnce(t *testing.T) {
	a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
	var under []*place
	for range 64 {
		mine, _ := a.enter(now, "one", true, false)
		require.NotNil(t, mine)
		under = append(under, mine)
	}
	require.True(t, a.crowded(now))
	for _, x := range under {
		x.leave()
	}
	require.False(t, a.crowded(now))
	admitted := 64
	for range 10_000 {
		if mine, _ := a.enter(now, "one", true, false); mine != nil {
			admitted++
			mine.leave()
		}
	}
	require.EqualValues(t, strangerTerms.burst, admitted)
	for _, host := range []string{"two", "one"} {
		mine, _ := a.enter(now, host, true, host == "one")
		require.NotNil(t, mine, "neither others are disturbed, nor members")
	}
	mine, _ := a.enter(now.Add(time.Second), "one", true, false)
	require.NotNil(t, mine, "and it may try again")
}

func TestWhoseAddressMayBeForgedIsAskedToShowItWhereManyAreUnderWayOrWere(t *testing.T) {
	for _, terms := range []placeTerms{unprovedTerms, unmarkedTerms} {
		a, now := newAdmission(terms), time.Unix(0, 0)
		for range int(terms.burst) {
			require.False(t, a.crowded(now))
			mine, _ := a.enter(now, "forged", false, true)
			require.NotNil(t, mine)
			mine.leave()
		}
		require.True(t, a.crowded(now), "many came, though few are under way")
		require.Empty(t, a.members.accounts, "who may be forged gets no member's place")
		require.Empty(t, a.strangers.accounts, "nor spends what others have")
	}
}

func TestHandshakesThatAreNotFinishedDoNotKeepAPeerOut(t *testing.T) {
	leak.Check(t)
	id := fromToken(t, transporttest.Token(), "w", time.Now)
	l := listen(t, Config{Identity: id})
	udp, err := net.ListenUDP("udp4", nil)
	require.NoError(t, err)
	defer udp.Close()
	tr := &quic.Transport{Conn: &deaf{udp}}
	defer tr.Close()
	to, err := net.ResolveUDPAddr("udp", l.Addr())
	require.NoError(t, err)
	for range 100 {
		go func() { _, _ = tr.Dial(t.Context(), to, tlsConfig(id, ALPN), &quic.Config{}) }()
	}
	g := l.(*quicListener).gate
	require.Eventually(t, func() bool { return g.verify(nil) }, 10*time.Second, time.Millisecond)
	n, err := New(Config{Identity: id})
	require.NoError(t, err)
	link, err := n.Dial(t.Context(), l.Addr())
	require.NoError(t, err)
	require.NoError(t, link.Close(""))
}

// deaf hears nothing.
type deaf struct{ net.PacketConn }

func (d *deaf) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		if n, from, err := d.PacketConn.ReadFrom(b); err != nil {
			return n, from, err
		}
	}
}
