package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/server"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/talktest"
	"github.com/weft-project/weft/store/internal/wire"
)

func TestWhatAServerOfPyTorchsLacksIsRefusedWithAWordOfWhatHasIt(t *testing.T) {
	const queue, list, grow = "queues need a Weft server, or PyTorch 2.8", "a list of keys needs a Weft server", "2.0 or later"
	for name, lacks := range map[string][]string{
		"1.13": {queue, list, grow}, "2.0": {queue, list}, "2.1": {queue, list}, "2.4": {queue, list}, "2.6": {queue, list},
		"poll": {queue, list}, "2.8": {list}, "2.15": nil, "2.15 poll": {queue}, "weft": nil,
	} {
		inEach(t, []string{name}, func(t *testing.T, f *fake, cl *Client) {
			c := t.Context()
			for range 2 {
				_, listErr := cl.ListKeys(c)
				_, lenErr := cl.Len(c, "q")
				pushErr := cl.Push(c, "q", []byte("v"))
				appendErr := cl.Append(c, "k", []byte("v"))
				for what, errs := range map[string][]error{queue: {lenErr, pushErr}, list: {listErr}, grow: {appendErr}} {
					for _, err := range errs {
						if !contains(lacks, what) {
							require.NoError(t, err)
							continue
						}
						require.ErrorIs(t, err, kv.ErrUnsupported)
						require.NotErrorIs(t, err, kv.ErrUncertain)
						require.ErrorContains(t, err, what)
					}
				}
				if !contains(lacks, queue) {
					v, err := cl.Pop(c, "q")
					require.NoError(t, err)
					require.Equal(t, "v", string(v))
					continue
				}
				_, err := cl.Pop(c, "q")
				require.ErrorIs(t, err, kv.ErrUnsupported)
				_, _, err = cl.TryPop(c, "q")
				require.ErrorIs(t, err, kv.ErrUnsupported)
			}
			require.NoError(t, cl.Set(c, "k", nil))
		})
	}
}

func TestAWaitEndsAlsoAtAServerThatDoesNotTellItWhatACompareSetMade(t *testing.T) {
	inEach(t, []string{"1.13", "2.0", "2.1", "poll"}, func(t *testing.T, f *fake, cl *Client) {
		f.deaf = true
		ends := make(chan error, 2)
		go func() { ends <- cl.Wait(t.Context(), "k") }()
		go func() {
			_, err := cl.Get(t.Context(), "k")
			ends <- err
		}()
		time.Sleep(time.Minute)
		start := time.Now()
		_, err := cl.CompareSet(t.Context(), "k", nil, []byte("v"))
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, <-ends)
		}
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}

func TestAWaitThatAServerEndsForNothingGoesOn(t *testing.T) {
	inEach(t, []string{"2.6", "poll"}, func(t *testing.T, f *fake, cl *Client) {
		end := make(chan error)
		go func() { end <- cl.Wait(t.Context(), "k") }()
		synctest.Wait()
		f.set("/k", "v")
		f.apply(state.Command{Op: state.OpDelete, Key: "/k"})
		synctest.Wait()
		require.Empty(t, end)
		f.set("/k", "v")
		require.NoError(t, <-end)
	})
}

func contains(all []string, one string) bool {
	return strings.Contains(strings.Join(all, "\n"), one)
}

// At PyTorch's servers an ADD to a barrier's key lets go whoever waits there, whether all have come
// or not.
func TestABarrierIsPyTorchsOwnWhereTheServerHasIt(t *testing.T) {
	inEach(t, []string{"2.8", "2.15", "2.15 poll"}, func(t *testing.T, f *fake, cl *Client) {
		var asked []string
		f.on = func(cmd state.Command) bool {
			if cmd.Key == "/b" {
				asked = append(asked, cmd.Op.String())
			}
			return false
		}
		nc, err := f.dial(t.Context(), "")
		require.NoError(t, err)
		theirs := talktest.NewRaw(t, nc)
		theirs.Send(talktest.Hello + "04 " + talktest.Two + "'/b' " + talktest.One)
		theirs.Expect(talktest.One)
		if f.has(state.OpBarrier) {
			theirs.Send("12 " + talktest.Two + "'/c' " + talktest.Two)
			synctest.Wait()
			require.NoError(t, cl.Barrier(t.Context(), "c", 2))
			theirs.Expect("00")
		}
		require.NoError(t, cl.Barrier(t.Context(), "b", 2))
		require.Equal(t, map[bool][]string{true: {"add", "barrier"}, false: {"add", "add"}}[f.has(state.OpBarrier)], asked)
		require.Equal(t, map[bool]int{true: 2, false: 1}[f.has(state.OpBarrier)], f.stats().Keys, "nothing is left of asking whether it has it")
	})
}

// Nobody can tell whether a BARRIER without an answer has counted.
func TestABarrierThatIsLostSaysWhetherItMayHaveArrived(t *testing.T) {
	inEach(t, []string{"2.15"}, func(t *testing.T, f *fake, cl *Client) {
		require.NoError(t, cl.Barrier(t.Context(), "first", 1)) // after which it is known what the server has
		for name, after := range map[string]bool{"before": false, "after": true} {
			hangUpOnce(f, state.OpBarrier, after)
			err := cl.Barrier(t.Context(), name, 1)
			require.ErrorIs(t, err, kv.ErrUncertain)
			require.ErrorIs(t, err, kv.ErrUnreachable)
			there, err := cl.Check(t.Context(), name)
			require.NoError(t, err)
			require.Equal(t, after, there)
		}
	})
}

// That a server was lost while it was asked what it knows must not be taken for that it knows it
// not.
func TestALostConnectionIsNotTakenForAMissingCommand(t *testing.T) {
	for _, name := range []string{"2.8", "2.15"} {
		inEach(t, []string{name}, func(t *testing.T, f *fake, cl *Client) {
			hangUpOnce(f, state.OpLen, false)
			require.NoError(t, cl.Push(t.Context(), "q", nil))
			cl.knows = map[state.Op]bool{}
			f.stop()
			time.AfterFunc(time.Minute, f.start)
			n, err := cl.Len(t.Context(), "q")
			require.NoError(t, err)
			require.Equal(t, int64(1), n)
		})
	}
}

func TestGetStartsAgainIfTheKeyIsDeletedBeforeItIsRead(t *testing.T) {
	inEach(t, []string{"1.13", "2.1", "2.6", "poll"}, func(t *testing.T, f *fake, cl *Client) {
		f.set("/k", "gone")
		f.set("/other", "")
		deleted := 0
		f.after = func(cmd state.Command) bool {
			if (cmd.Op == state.OpWait || cmd.Op == state.OpMultiGet) && deleted < 3 && f.state.Has("/k") {
				deleted++
				f.state.Apply(0, state.Command{Op: state.OpDelete, Key: "/k"}, nil)
				time.AfterFunc(time.Second, func() { f.set("/k", "again") })
			}
			return false
		}
		if f.dialect == wire.Dialect113 { // which looks first
			f.apply(state.Command{Op: state.OpDelete, Key: "/k"})
			time.AfterFunc(time.Second, func() { f.set("/k", "again") })
		}
		values, err := cl.MultiGet(t.Context(), "other", "k")
		require.NoError(t, err)
		require.Equal(t, "again", string(values[1]))
		v, err := cl.Get(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "again", string(v))
	})
}

func TestManyKeysAreReadAndSetOnAnOldServerWhoeverIsSlow(t *testing.T) {
	f := newFake(t, "1.13")
	cl := f.client(Config{})
	pairs, keys := make([]kv.Pair, 3000), make([]string, 3000)
	for i := range pairs {
		keys[i] = fmt.Sprint("key ", i)
		pairs[i] = kv.Pair{Key: keys[i], Value: []byte(strings.Repeat("v", i))}
	}
	require.NoError(t, cl.MultiSet(t.Context(), pairs...))
	values, err := cl.MultiGet(t.Context(), keys...)
	require.NoError(t, err)
	for i, v := range values {
		require.Len(t, v, i)
	}
}

// scripted is a server that answers each connection with the same bytes, once it has read
// something, and hangs up. Greetings are answered as Weft's server does for DialectAuto, and as
// PyTorch's for Dialect22.
func scripted(t testing.TB, cfg Config, answer []byte) *Client {
	cfg.Addr, cfg.Limits, cfg.Timeout = "sim:1", kv.Limits{Value: 256}, 5*time.Second
	cfg.dial = func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			if d := cfg.Dialect; d == wire.DialectAuto || d == wire.Dialect22 {
				greeting := make([]byte, 33)
				if _, err := io.ReadFull(far, greeting); err != nil {
					return
				}
				far.Write(append(greeting[6:10:10], map[bool]byte{true: 0, false: 1}[d == wire.DialectAuto]))
			}
			if _, err := far.Read(make([]byte, 4096)); err == nil {
				go io.Copy(io.Discard, far)
				far.Write(answer)
			}
		}()
		return near, nil
	}
	cl, err := Dial(context.Background(), cfg)
	require.NoError(t, err)
	return cl
}

func TestAServerThatAnswersNonsenseIsNotBelieved(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		want   error
		ask    func(context.Context, *Client) error
	}{
		"neither ready nor not":  {"02", kv.ErrProtocol, func(c context.Context, cl *Client) error { _, err := cl.Check(c, "k"); return err }},
		"a wait cancelled":       {"01", kv.ErrProtocol, func(c context.Context, cl *Client) error { return cl.Wait(c, "k") }},
		"a value too long":       {"01 01 00*6", kv.ErrProtocol, func(c context.Context, cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"2^63 bytes":             {"00*7 80", kv.ErrProtocol, func(c context.Context, cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"half a number":          {"00*3", kv.ErrUnreachable, func(c context.Context, cl *Client) error { _, err := cl.NumKeys(c); return err }},
		"half a value":           {"05 00*7 'hal'", kv.ErrUnreachable, func(c context.Context, cl *Client) error { _, err := cl.CompareSet(c, "k", nil, nil); return err }},
		"nothing, to an add":     {"", kv.ErrUnreachable, func(c context.Context, cl *Client) error { _, err := cl.Add(c, "k", 1); return err }},
		"nothing, to a get":      {"00", kv.ErrUnreachable, func(c context.Context, cl *Client) error { _, err := cl.Get(c, "k"); return err }},
		"nothing, to a set":      {"", kv.ErrUnreachable, func(c context.Context, cl *Client) error { return cl.Set(c, "k", nil) }},
		"not ready, to a delete": {"01", kv.ErrUnreachable, func(c context.Context, cl *Client) error { _, err := cl.Delete(c, "k"); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := scripted(t, Config{Dialect: wire.Dialect113}, talktest.Unhex(t, tc.answer))
				defer cl.Close()
				err := tc.ask(t.Context(), cl)
				require.ErrorIs(t, err, tc.want)
				var typed *kv.Error
				require.ErrorAs(t, err, &typed)
				require.Equal(t, "sim:1", typed.Addr)
			})
		})
	}
}

func TestAPingThatComesBackWrongIsNoServerOfOurs(t *testing.T) {
	_, err := Dial(t.Context(), Config{Addr: "sim:1", dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			io.ReadFull(far, make([]byte, 33))
			far.Write(make([]byte, 5))
		}()
		return near, nil
	}})
	require.ErrorIs(t, err, kv.ErrProtocol)
	require.ErrorContains(t, err, "ping failed, invalid nonce returned: 0x0, expected 0x")
}

func TestAClientWithTLSAndOneWithout(t *testing.T) {
	serves, trusts := talktest.Identity(t)
	s := serve(t, server.Config{TLS: serves, Plain: server.PlainNever})
	c, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cl, err := Dial(c, Config{Addr: s.Addr(), TLS: trusts, WorldSize: 1, WaitForWorkers: true})
	require.NoError(t, err)
	defer cl.Close()
	require.True(t, cl.idle[0].in.Own)
	require.NoError(t, cl.Set(c, "k", make([]byte, 1<<20)))
	v, err := cl.Get(c, "k")
	require.NoError(t, err)
	require.Len(t, v, 1<<20)
	for range 3 { // a wait is taken back over TLS, too, and idle connections are looked at
		short, cancel := context.WithTimeout(c, 10*time.Millisecond)
		require.ErrorIs(t, cl.Wait(short, "never"), kv.ErrTimeout)
		cancel()
		cl.mu.Lock()
		for _, l := range cl.idle {
			l.idle = l.idle.Add(-idleCheck)
			require.True(t, quiet(l.nc))
		}
		cl.mu.Unlock()
		_, err := cl.Add(c, "n", 1)
		require.NoError(t, err)
	}
	w, err := cl.Watch(c, "w")
	require.NoError(t, err)
	require.NoError(t, cl.Set(c, "w", nil))
	require.Equal(t, kv.Created, (<-w.C).Kind)
	w.Stop()

	_, other := talktest.Identity(t)
	_, err = Dial(c, Config{Addr: s.Addr(), TLS: other})
	require.ErrorContains(t, err, "no TLS session with the store")
	require.NoError(t, c.Err(), "what will not get better is not tried until the end")
}

func FuzzReplies(f *testing.F) {
	for _, x := range talktest.Captured {
		f.Add(talktest.Unhex(f, x.Answer), byte(0))
	}
	for _, path := range talktest.Recordings(f) {
		for _, x := range talktest.RecordedIn(f, path) {
			f.Add(talktest.Unhex(f, x.Answer), byte(3))
		}
	}
	f.Add(talktest.Unhex(f, "00*8 ff 00 00 00 00"), byte(3)) // a barrier, from the question whether there is one
	f.Add(talktest.Unhex(f, "ff*8"), byte(1))
	f.Add(talktest.Unhex(f, "00 01 00*7 'v' fe"), byte(2))
	f.Add(talktest.Unhex(f, "02 03 00*7 'not'"), byte(2))
	f.Add(talktest.Unhex(f, "00 06 ff 01 02 00*7 '/k' 00*8 01 00*7 'v'"), byte(2))
	f.Fuzz(func(t *testing.T, answer []byte, way byte) {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{Dialect: []wire.Dialect{wire.Dialect113, wire.Dialect20, wire.DialectAuto, wire.Dialect22}[way%4]}
			cl := scripted(t, cfg, answer)
			defer cl.Close()
			c, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			start := time.Now()
			v, err := cl.Get(c, "k")
			require.LessOrEqual(t, len(v), 256)
			require.Equal(t, err == nil, v != nil)
			values, err := cl.MultiGet(c, "a", "b")
			require.Equal(t, err == nil, len(values) == 2)
			_, _ = cl.Add(c, "k", 1)
			_, _ = cl.Check(c, "k")
			_ = cl.Wait(c, "k")
			_, _ = cl.NumKeys(c)
			_ = cl.Set(c, "k", nil)
			_ = cl.Append(c, "k", nil)
			_, _ = cl.Len(c, "k")
			_, _ = cl.ListKeys(c)
			v, _ = cl.Pop(c, "k")
			require.LessOrEqual(t, len(v), 256)
			_ = cl.Barrier(c, "k", 1)
			v, _ = cl.CompareSet(c, "k", nil, nil)
			require.LessOrEqual(t, len(v), 256)
			if w, err := cl.Watch(c, "k"); err == nil {
				for range w.C {
				}
				require.Error(t, w.Err())
			}
			require.LessOrEqual(t, time.Since(start), 5*time.Second, "nothing goes on after the deadline")
		})
	})
}
