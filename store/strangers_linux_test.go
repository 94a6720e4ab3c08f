package store

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

// talkTo is what another process says to a server, and how much it waits to hear.
type talkTo struct {
	Addr, From, Say string
	Hear            int
}

func TestMain(m *testing.M) {
	proctest.Main(m, map[string]proctest.Command{
		"talk":  proctest.Do(talkAs),
		"serve": proctest.Do(serveFew),
		"greet": proctest.Do(greetOnce),
		"dial":  proctest.Do(dialAs),
		"hold":  proctest.Do(holdMany),
	})
}

// talkAs connects, says bytes and gives what it heard until it heard enough or the server hung up.
func talkAs(c context.Context, x talkTo) (string, error) {
	d := net.Dialer{}
	if x.From != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(x.From)}
	}
	nc, err := d.DialContext(c, "tcp", x.Addr)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	say, err := hex.DecodeString(x.Say)
	if err != nil {
		return "", err
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	_, _ = nc.Write(say) // the server may have hung up
	heard := make([]byte, x.Hear)
	n, err := io.ReadFull(nc, heard)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return hex.EncodeToString(heard[:n]), nil
}

// serveFew serves a store in a process that may have few files, until it ends.
func serveFew(c context.Context, files uint64) (string, error) {
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files, Max: files}); err != nil {
		return "", err
	}
	s, err := Serve(ServerConfig{})
	if err != nil {
		return "", err
	}
	context.AfterFunc(c, func() { _ = s.Close() })
	return s.Addr(), nil
}

// greetOnce listens as a store might, and gives what the first client says before it hangs up.
func greetOnce(c context.Context, addr string) (string, error) {
	l, err := new(net.ListenConfig).Listen(c, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer l.Close()
	nc, err := l.Accept()
	if err != nil {
		return "", err
	}
	defer nc.Close()
	heard, _ := io.ReadAll(io.LimitReader(nc, 1))
	return string(heard), nil
}

// holdMany connects so often and says nothing, until this process ends.
func holdMany(c context.Context, x talkTo) (struct{}, error) {
	for range x.Hear {
		nc, err := new(net.Dialer).DialContext(c, "tcp", x.Addr)
		if err != nil {
			return struct{}{}, err
		}
		context.AfterFunc(c, func() { _ = nc.Close() })
	}
	return struct{}{}, nil
}

func TestSilentConnectionsOfAnotherUserKeepNoClientOfOursFromAStoreWithTLS(t *testing.T) {
	server, client := talktest.Identity(t)
	s := served(t, ServerConfig{TLS: server, MaxClients: 64, Logger: new(talktest.Lines).Logger()})
	before := joined(t, s)
	stranger := proctest.StartStranger(t, nil)
	for range 3 {
		require.NoError(t, stranger.Ask(t.Context(), "hold", talkTo{Addr: s.Addr(), Hear: 200}, nil))
		for _, conf := range []*tls.Config{client, nil} { // a member, and a guest
			cl, err := Dial(t.Context(), ClientConfig{Addr: s.Addr(), TLS: conf})
			require.NoError(t, err)
			require.NoError(t, cl.Set(t.Context(), "k", []byte("v")))
			require.NoError(t, cl.Close())
		}
		require.NoError(t, before.Set(t.Context(), "k", nil), "who was there before is there")
	}
}

// dialAs dials a store as a program does, and says what it was told.
func dialAs(c context.Context, url string) (string, error) {
	r, err := Open(c, url, OpenConfig{Guest: true})
	if err == nil {
		return "", r.Close()
	}
	return fmt.Sprint(errors.Is(err, ErrStranger), " ", err), nil
}

func TestAnotherUserIsToldThatAPlainStoreServesItsOwnUserAlone(t *testing.T) {
	server, _ := talktest.Identity(t)
	stranger := proctest.StartStranger(t, nil)
	for name, cfg := range map[string]ServerConfig{"plain": {}, "beside TLS": {TLS: server}} {
		s := served(t, cfg)
		for _, url := range []string{"tcp://" + s.Addr(), "tcp://" + s.Addr() + "?any_owner=true"} {
			var told string
			require.NoError(t, stranger.Ask(t.Context(), "dial", url, &told), name)
			require.Regexp(t, `^true .* serves its own user's processes alone, and this is uid 65534: `, told, "%s %s", name, url)
		}
	}
	s := served(t, ServerConfig{TLS: server, Plain: PlainNever})
	var heard string
	require.NoError(t, stranger.Ask(t.Context(), "talk", talkTo{Addr: s.Addr(), Say: hex.EncodeToString(talktest.Unhex(t, "06")), Hear: 8}, &heard))
	require.Equal(t, hex.EncodeToString([]byte(wire.RefusesPlain)), heard, "whose it is, is not the reason")
}

// refused is all that another user hears.
var refused = hex.EncodeToString([]byte(wire.RefusesUser))

// attacks are what another user's process asks for, in the dialect of PyTorch 1.13, and how much an
// answer has.
var attacks = map[string]struct {
	say  string
	hear int
}{
	"count": {"06", 8}, "read": {"02 02 00*7 '/k'", 9}, "delete": {"08 02 00*7 '/k'", 8},
	"forge": {"00 02 00*7 '/k' 01 00*7 'x' 06", 8}, "watch": {"07 02 00*7 '/k'", 1}, "wait": {"05 01 00*7 02 00*7 '/k'", 1},
	"list": {talktest.Hello + "11", 16},
}

func TestAnotherUserOfTheHostNeitherReadsNorDeletesNorForgesWhatAPlainStoreHas(t *testing.T) {
	log := new(talktest.Lines)
	s := served(t, ServerConfig{Logger: log.Logger()})
	cl := joined(t, s)
	require.NoError(t, cl.Set(t.Context(), "k", []byte("v")))
	stranger := proctest.StartStranger(t, nil)
	for name, x := range attacks {
		var heard string
		require.NoError(t, stranger.Ask(t.Context(), "talk", talkTo{Addr: s.Addr(), Say: hex.EncodeToString(talktest.Unhex(t, x.say)), Hear: x.hear}, &heard))
		require.Contains(t, []string{"", refused[:min(2*x.hear, len(refused))]}, heard, name)
	}
	v, err := cl.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.Contains(t, log.String(), "uid 65534")
}

func TestAnotherUserOfTheHostDoesNotGoRoundTLSFromLoopback(t *testing.T) {
	server, client := talktest.Identity(t)
	log := new(talktest.Lines)
	s := served(t, ServerConfig{Addr: "0.0.0.0:0", TLS: server, Logger: log.Logger()})
	_, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	addr := net.JoinHostPort("127.0.0.1", port)
	cl, err := Dial(t.Context(), ClientConfig{Addr: addr, TLS: client})
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Set(t.Context(), "k", []byte("v")))
	stranger := proctest.StartStranger(t, nil)
	for name, x := range attacks {
		var heard string
		require.NoError(t, stranger.Ask(t.Context(), "talk",
			talkTo{Addr: addr, From: "127.0.0.1", Say: hex.EncodeToString(talktest.Unhex(t, x.say)), Hear: x.hear}, &heard))
		require.Contains(t, []string{"", refused[:min(2*x.hear, len(refused))]}, heard, name)
	}
	v, err := cl.Get(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "v", string(v))
	require.Contains(t, log.String(), "uid 65534")
}

func TestSilentConnectionsThatTakeAllFilesLockOutNoClient(t *testing.T) {
	leak.Check(t)
	p := proctest.Start(t, nil)
	var addr string
	require.NoError(t, p.Ask(t.Context(), "serve", 300, &addr))
	for range 330 {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer nc.Close()
	}
	cl, err := Dial(t.Context(), ClientConfig{Addr: addr, Timeout: 20 * time.Second})
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.Set(t.Context(), "k", []byte("v")))
}

func TestAClientSaysNothingToAServerOfAnotherUser(t *testing.T) {
	leak.Check(t)
	stranger := proctest.StartStranger(t, nil)
	for _, anyOwner := range []bool{false, true} {
		addr := proctest.Address()
		heard := make(chan string, 1)
		c, giveUp := context.WithCancel(t.Context())
		defer giveUp()
		go func() {
			defer giveUp() // it hangs up, and nobody listens any more
			var text string
			if err := stranger.Ask(t.Context(), "greet", addr, &text); err != nil {
				text = err.Error()
			}
			heard <- text
		}()
		_, err := Open(c, "tcp://"+addr, OpenConfig{Guest: true, AnyOwner: anyOwner})
		require.Error(t, err)
		require.Equal(t, !anyOwner, errors.Is(err, ErrForeign), err)
		if !anyOwner {
			require.Empty(t, <-heard)
			require.ErrorContains(t, err, "uid 65534")
			continue
		}
		require.Equal(t, "\x00", <-heard, "the beginning of VALIDATE")
	}
}
