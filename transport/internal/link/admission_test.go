package link

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/places"
	"github.com/weft-project/weft/transport/internal/transporttest"
	"github.com/weft-project/weft/transport/internal/wire"
)

func TestAHostsHandshakesAreBoundedAndItsWorkersMayAllJoinAtOnce(t *testing.T) {
	a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
	var under []*places.Place
	for range 64 {
		mine, _ := a.enter(now, "one", true, false)
		require.NotNil(t, mine)
		under = append(under, mine)
	}
	require.True(t, a.crowded(now))
	for _, x := range under {
		x.Leave()
	}
	require.False(t, a.crowded(now))
	admitted := 64
	for range 10_000 {
		if mine, _ := a.enter(now, "one", true, false); mine != nil {
			admitted++
			mine.Leave()
		}
	}
	require.EqualValues(t, strangerTerms.Burst, admitted)
	for _, host := range []string{"two", "one"} {
		mine, _ := a.enter(now, host, true, host == "one")
		require.NotNil(t, mine, "neither others are disturbed, nor members")
	}
	mine, _ := a.enter(now.Add(time.Second), "one", true, false)
	require.NotNil(t, mine, "and it may try again")
}

func TestWhoseAddressMayBeForgedIsAskedToShowItWhereManyAreUnderWayOrWere(t *testing.T) {
	for _, terms := range []places.Terms{unprovedTerms, unmarkedTerms} {
		a, now := newAdmission(terms), time.Unix(0, 0)
		for range int(terms.Burst) {
			require.False(t, a.crowded(now))
			mine, _ := a.enter(now, "forged", false, true)
			require.NotNil(t, mine)
			mine.Leave()
		}
		require.True(t, a.crowded(now), "many came, though few are under way")
		require.Empty(t, a.members.Accounts, "who may be forged gets no member's place")
		require.Empty(t, a.strangers.Accounts, "nor spends what others have")
	}
}

func TestHandshakesThatAreNotFinishedDoNotKeepAPeerOut(t *testing.T) {
	leak.Check(t)
	id := memberOf(t, transporttest.Token(), "w", time.Now)
	l := listen(t, Config{Identity: id})
	udp, err := net.ListenUDP("udp4", nil)
	require.NoError(t, err)
	defer udp.Close()
	tr := &quic.Transport{Conn: &deaf{udp}}
	defer tr.Close()
	to, err := net.ResolveUDPAddr("udp", l.Addr())
	require.NoError(t, err)
	for range 100 {
		go func() { _, _ = tr.Dial(t.Context(), to, identity.TLSConfig(id, wire.ALPN), &quic.Config{}) }()
	}
	g := l.(*Listener).gate
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

// Sixty-four hosts want as much as they can get, and a new one comes now and then. Who is evicted
// may be gone at once, or late.
func TestAFloodOfManyHostsIsHeldToWhatAllMayTakeAndANewHostGetsIn(t *testing.T) {
	for _, lasts := range []time.Duration{0, 2 * listenTimeout} {
		a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
		flood, late := 0, 0
		type ghost struct {
			x    *places.Place
			gone time.Time
		}
		var ghosts []ghost
		evict := func(x *places.Place) {
			if x != nil {
				ghosts = append(ghosts, ghost{x, now.Add(lasts)})
			}
		}
		for ms := range 20_000 {
			now = now.Add(time.Millisecond)
			for len(ghosts) > 0 && !now.Before(ghosts[0].gone) {
				ghosts[0].x.Leave()
				ghosts = ghosts[1:]
			}
			for host := range 64 {
				mine, gone := a.enter(now, fmt.Sprint("flood", host), true, false)
				if evict(gone); mine != nil {
					flood++
				}
			}
			if ms%500 != 499 {
				continue
			}
			late++
			mine, gone := a.enter(now, fmt.Sprint("late", late), true, false)
			require.NotNil(t, mine)
			evict(gone)
			for host := range 64 { // an honest one needs some round trips
				_, gone := a.enter(now, fmt.Sprint("flood", host), true, false)
				require.NotSame(t, mine, gone)
				evict(gone)
			}
			mine.Leave()
		}
		require.Less(t, flood, 5*512+20*200, "stranger hosts share a bound")
	}
}

func TestAFloodFromAMembersHostHarmsNoOtherMember(t *testing.T) {
	a, now := newAdmission(unprovedTerms), time.Unix(0, 0)
	for i := range 20_000 {
		now = now.Add(100 * time.Microsecond)
		for who, known := range map[string]bool{"one": true, fmt.Sprint("stranger", i%64): false} {
			if _, gone := a.enter(now, who, true, known); gone != nil {
				gone.Leave()
			}
		}
		if i%1000 == 999 {
			mine, gone := a.enter(now, fmt.Sprint("member", i), true, true)
			require.NotNil(t, mine)
			if gone != nil {
				require.Same(t, a.members.Accounts["one"], gone.Account)
				gone.Leave()
			}
			mine.Leave()
		}
	}
}

func TestTheAccountsThatAreRememberedAreBounded(t *testing.T) {
	a, r := newAdmission(unprovedTerms), rand.New(rand.NewPCG(1, 1))
	now := time.Unix(0, 0)
	for range 100_000 {
		now = now.Add(time.Duration(r.IntN(1000)) * time.Microsecond)
		a.enter(now, fmt.Sprint(r.IntN(1<<20)), true, false)
		require.LessOrEqual(t, len(a.strangers.Accounts), places.AccountsMax+5*handshakesMost)
	}
}
