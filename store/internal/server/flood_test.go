package server

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// distant is a connection that comes from another machine.
type distant struct {
	net.Conn
	from *net.TCPAddr
}

func (distant) LocalAddr() net.Addr    { return &net.TCPAddr{IP: net.IPv4(10, 1, 0, 1), Port: 29500} }
func (d distant) RemoteAddr() net.Addr { return d.from }

// distantServer is a server without a network, and a function that connects from the host with a
// number.
func distantServer(t *testing.T, cfg Config) (*Server, func(host int) net.Conn) {
	s := newServer(cfg)
	s.far = true
	t.Cleanup(func() { s.Close() })
	port := 0
	return s, func(host int) net.Conn {
		near, far := net.Pipe()
		port++
		s.attach(distant{far, &net.TCPAddr{IP: net.IPv4(10, 2, byte(host>>8), byte(host)), Port: port}})
		return near
	}
}

// While ten thousand connections of 64 hosts say nothing, and new ones come all the time, members
// come in at once and are served.
func TestTenThousandSilentConnectionsKeepNoMemberOut(t *testing.T) {
	server, client := talktest.Identity(t)
	synctest.Test(t, func(t *testing.T) {
		log := new(talktest.Lines)
		s, dial := distantServer(t, Config{TLS: server, MaxClients: 1000, Logger: log.Logger()})
		for i := range 10_000 {
			defer dial(i % 64).Close()
			if i%500 != 0 {
				continue
			}
			nc := dial(1000)
			defer nc.Close()
			member := talktest.NewRaw(t, tls.Client(nc, client))
			for range 3 {
				defer dial(i % 64).Close()
				member.Alive()
			}
		}
		synctest.Wait()
		stats := s.Stats()
		require.Equal(t, 1000, stats.Clients)
		require.EqualValues(t, 10_000+80-1000, stats.Evicted)
		require.Zero(t, stats.Refused)
		time.Sleep(proofWithin)
		synctest.Wait()
		require.Equal(t, 20, s.Stats().Clients, "who has proved nothing in time is gone, and no member")
		require.Less(t, strings.Count(log.String(), "\n"), 50, "strangers do not fill the log")
		require.Contains(t, log.String(), "client=10.2.0.")
		require.Contains(t, log.String(), "unsaid=")
	})
}

func TestGuestsOfOneAddressTakeHalfTheirRoomAndNoneOfTheMembers(t *testing.T) {
	server, client := talktest.Identity(t)
	synctest.Test(t, func(t *testing.T) {
		log := new(talktest.Lines)
		_, dial := distantServer(t, Config{TLS: server, Plain: PlainAlways, MaxClients: 16, Logger: log.Logger()})
		served := func(r talktest.Raw) bool {
			r.Send("06")
			n, _ := r.NC.Read(make([]byte, 8))
			return n == 8
		}
		let := map[int]int{}
		for i := range 40 {
			nc := dial(i % 4)
			defer nc.Close()
			if served(talktest.NewRaw(t, nc)) {
				let[i%4]++
			}
		}
		require.Equal(t, map[int]int{0: 3, 1: 3, 2: 3, 3: 3}, let, "12 guests of 16 clients")
		for range 4 {
			nc := dial(5)
			defer nc.Close()
			require.True(t, served(talktest.NewRaw(t, tls.Client(nc, client))))
		}
		synctest.Wait()
		require.Contains(t, log.String(), "there are as many clients as there may be")
	})
}

func TestOneAddressHasHalfOfTheGuestsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial := distantServer(t, Config{MaxClients: 8})
		for i := range 8 {
			nc := dial(1)
			defer nc.Close()
			_, err := nc.Write([]byte{6})
			require.NoError(t, err)
			n, _ := nc.Read(make([]byte, 8))
			require.Equal(t, i < 4, n == 8, i)
		}
		nc := dial(2)
		defer nc.Close()
		talktest.NewRaw(t, nc).Alive()
	})
}

// PyTorch 1.13 has a second connection that says nothing as long as nobody watches a key.
func TestASilentConnectionMayStayBesideOneOfTheSameHostThatSpeaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dial := distantServer(t, Config{})
		first, second := dial(1), dial(1)
		defer second.Close()
		talktest.NewRaw(t, first).Alive()
		half := dial(1)
		defer half.Close()
		_, err := half.Write(talktest.Unhex(t, "00 02 00*7 '/"))
		require.NoError(t, err)
		alone := dial(2)
		defer alone.Close()
		time.Sleep(proofWithin + time.Second)
		synctest.Wait()
		require.Equal(t, 2, s.Stats().Clients, "half a command is given up, and so is a silent one of another host")
		time.Sleep(10 * proofWithin)
		talktest.NewRaw(t, second).Alive()
		third := dial(1)
		defer third.Close()
		first.Close()
		second.Close()
		time.Sleep(2 * proofWithin)
		synctest.Wait()
		require.Zero(t, s.Stats().Clients, "nobody speaks beside it any more")
	})
}

// A member that has proved itself has all the time it wants for its first command, and a guest for
// its second.
func TestWhoHasProvedItselfIsNotHurried(t *testing.T) {
	server, client := talktest.Identity(t)
	synctest.Test(t, func(t *testing.T) {
		_, dial := distantServer(t, Config{TLS: server, Plain: PlainAlways})
		member, guest := tls.Client(dial(1), client), dial(2)
		defer member.NetConn().Close()
		defer guest.Close()
		require.NoError(t, member.Handshake())
		talktest.NewRaw(t, guest).Alive()
		time.Sleep(time.Hour)
		talktest.NewRaw(t, guest).Alive()
		talktest.NewRaw(t, member).Alive()
	})
}

func TestAStoreTakesNoMoreClientsThanItsProcessMayOpenFiles(t *testing.T) {
	log := new(talktest.Lines)
	s := newServer(Config{MaxClients: 1 << 30, Logger: log.Logger()})
	files := fileLimit()
	require.Equal(t, min(1<<30, files-files/filesPart), s.cfg.MaxClients)
	require.Equal(t, files < 1<<30, strings.Contains(log.String(), "may not open more files"))
}

func TestAKeyOfAnothersIsShownWithoutWhatMovesACursor(t *testing.T) {
	r, err := wire.NewDecoder(strings.NewReader("\x01"+string(binary.LittleEndian.AppendUint64(nil, 9))+"\x1b[2Jbad\r\n"), talktest.Wires["own"], kv.Defaulted(kv.Limits{})).
		Reply(state.Command{Op: state.OpGet})
	require.NoError(t, err)
	require.EqualError(t, r.Err, " [2Jbad  ")
	for _, op := range []string{"get", "barrier"} {
		text := kv.KeysTimeout(op, time.Second, []string{"\x1b]0;x\x07"}).Error()
		require.True(t, strings.HasSuffix(text, "/ ]0;x "), fmt.Sprintf("%q", text))
	}
}
