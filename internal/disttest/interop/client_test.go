//go:build interop

package interop

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	weft "github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/storetest"
)

// dial makes a client of ours.
func (p *torch) dial(t *testing.T, at server) *weft.Client {
	t.Helper()
	c, err := weft.Dial(t.Context(), weft.ClientConfig{Addr: at.addr(), Dialect: p.dialect(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// servers are the release's, by name, with the arguments that choose them.
func (p *torch) servers() map[string]map[string]any {
	if !p.since(2, 2) {
		return map[string]map[string]any{"poll": {}}
	}
	return map[string]map[string]any{"libuv": {"use_libuv": true}, "poll": {"use_libuv": false}}
}

// lacks is what a server of the release has not, and cannot be put together of what it has. Those before 2.1 tell of changes, but hang up
// on everybody who changes a key whose watcher has left.
func (p *torch) lacks(server string) []storetest.Part {
	parts := []storetest.Part{storetest.Errors, storetest.List, storetest.Watches}
	if server == "poll" || !p.since(2, 8) {
		parts = append(parts, storetest.Queues)
	}
	if !p.since(2, 1) {
		parts = append(parts, storetest.Append, storetest.Multi)
	}
	return parts
}

func TestOurClientConformsWithPyTorchsServers(t *testing.T) {
	p := start(t)
	for name, named := range p.servers() {
		t.Run(name, func(t *testing.T) {
			open := func(t *testing.T) func() weft.Store {
				at := p.theirs(t, named)
				return func() weft.Store {
					c, err := weft.Dial(t.Context(), weft.ClientConfig{Addr: at.addr(), Dialect: p.dialect(t)})
					require.NoError(t, err)
					return c
				}
			}
			storetest.Run(t, func(t *testing.T) weft.Store { return open(t)() }, p.lacks(name)...)
			storetest.RunShared(t, open, p.lacks(name)...)
		})
	}
}

func TestOurClientSaysWhatPyTorchsServersCannotAndGoesOn(t *testing.T) {
	p := start(t)
	for name, named := range p.servers() {
		t.Run(name, func(t *testing.T) {
			our, c := p.dial(t, p.theirs(t, named)), t.Context()
			require.NoError(t, our.Set(c, "k", []byte("v")))
			_, err := our.ListKeys(c)
			require.ErrorIs(t, err, weft.ErrUnsupported)
			if name != "libuv" || !p.since(2, 8) {
				require.ErrorIs(t, our.Push(c, "q", nil), weft.ErrUnsupported)
				_, err = our.Pop(c, "q")
				require.ErrorIs(t, err, weft.ErrUnsupported)
				_, _, err = our.TryPop(c, "q")
				require.ErrorIs(t, err, weft.ErrUnsupported)
				_, err = our.Len(c, "q")
				require.ErrorIs(t, err, weft.ErrUnsupported)
			}
			if !p.since(2, 1) {
				require.ErrorIs(t, our.Append(c, "k", []byte("w")), weft.ErrUnsupported)
			}
			require.NoError(t, our.MultiSet(c, weft.Pair{Key: "a", Value: []byte("1")}, weft.Pair{Key: "b", Value: nil}))
			values, err := our.MultiGet(c, "k", "a", "b")
			require.NoError(t, err)
			require.Equal(t, "v 1 ", fmt.Sprintf("%s %s %s", values[0], values[1], values[2]))
			_, err = our.Add(c, "k", 1)
			require.ErrorIs(t, err, weft.ErrNotANumber)
		})
	}
}

func TestOurClientsJoinPyTorchsWorld(t *testing.T) {
	p := start(t)
	opened := make(chan answer, 1)
	l := freePort(t)
	go func() { // it waits for all three
		_, a := p.tryOpen(t, "TCPStore", []any{"127.0.0.1", l}, map[string]any{"is_master": true, "world_size": 3, "wait_for_workers": true, "timeout": seconds(60)})
		opened <- a
	}()
	c := t.Context()
	first, err := weft.Dial(c, weft.ClientConfig{Addr: server{l}.addr(), WorldSize: 3, Dialect: p.dialect(t), Timeout: time.Minute})
	require.NoError(t, err)
	defer first.Close()
	second, err := weft.Dial(c, weft.ClientConfig{Addr: server{l}.addr(), WorldSize: 3, WaitForWorkers: true, Dialect: p.dialect(t), Timeout: time.Minute})
	require.NoError(t, err)
	defer second.Close()
	require.Empty(t, (<-opened).Error)
	n, err := first.NumKeys(c)
	require.NoError(t, err)
	require.Equal(t, int64(1), n, "init/")
}

func TestAWatchOfOursTellsWhatPyTorchsClientsChange(t *testing.T) {
	p := start(t)
	at := p.theirs(t, nil)
	our, a := p.dial(t, at), p.client(t, at, nil)
	w, err := our.Watch(t.Context(), "k")
	require.NoError(t, err)
	defer w.Stop()
	var got strings.Builder
	for _, x := range []struct {
		method string
		args   []any
		now    string
	}{{"set", []any{"k", "1"}, "1"}, {"add", []any{"k", 4}, "5"}, {"compare_set", []any{"k", "5", "6"}, "6"}, {"delete_key", []any{"k"}, ""}} {
		a.call(t, x.method, x.args...)
		ch := <-w.C
		fmt.Fprintf(&got, "%v %q %q; ", ch.Kind, ch.Old, ch.New)
		require.Equal(t, x.now, string(ch.New))
	}
	require.Equal(t, `created "" "1"; updated "1" "5"; updated "5" "6"; deleted "6" ""; `, got.String())
}
