//go:build interop

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/storetest"
	weft "github.com/weft-project/weft/store"
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
	if !p.can("libuvBackend") {
		return map[string]map[string]any{"poll": {}}
	}
	return map[string]map[string]any{"libuv": {"use_libuv": true}, "poll": {"use_libuv": false}}
}

// lacks is what a server has not, and cannot be put together of what it has. Those that tell of
// changes hang up on everybody who changes a key whose watcher has left.
func (f features) lacks() []storetest.Part {
	parts := []storetest.Part{storetest.Errors, storetest.Watches}
	if !f.lists {
		parts = append(parts, storetest.List)
	}
	if !f.queues {
		parts = append(parts, storetest.Queues)
	}
	if !f.appends {
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
			lacks := p.features(t, named).lacks()
			storetest.Run(t, func(t *testing.T) weft.Store { return open(t)() }, lacks...)
			storetest.RunShared(t, open, lacks...)
		})
	}
}

func TestOurClientDoesWhatPyTorchsServersCanAndSaysWhatTheyCannot(t *testing.T) {
	p := start(t)
	for name, named := range p.servers() {
		t.Run(name, func(t *testing.T) {
			has, our, c := p.features(t, named), p.dial(t, p.theirs(t, named)), t.Context()
			t.Logf("%+v", has)
			check := func(there bool, err error) {
				t.Helper()
				if there {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, weft.ErrUnsupported)
				}
			}
			require.NoError(t, our.Set(c, "k", []byte("v")))
			keys, err := our.ListKeys(c)
			check(has.lists, err)
			require.Equal(t, has.lists, slices.Equal(keys, []string{"k"}), "%q", keys)

			check(has.queues, our.Push(c, "q", []byte("1")))
			check(has.queues, our.Push(c, "q", []byte("2")))
			first, err := our.Pop(c, "q")
			check(has.queues, err)
			second, ok, err := our.TryPop(c, "q")
			check(has.queues, err)
			require.Equal(t, has.queues, ok)
			require.Equal(t, has.queues, string(first)+string(second) == "12")
			n, err := our.Len(c, "q")
			check(has.queues, err)
			require.Zero(t, n)

			check(has.appends, our.Append(c, "k", []byte("w")))
			v, err := our.Get(c, "k")
			require.NoError(t, err)
			require.Equal(t, has.appends, string(v) == "vw", "%q", v)

			require.NoError(t, our.MultiSet(c, weft.Pair{Key: "a", Value: []byte("1")}, weft.Pair{Key: "b", Value: nil}))
			values, err := our.MultiGet(c, "k", "a", "b")
			require.NoError(t, err)
			require.Equal(t, string(v)+" 1 ", fmt.Sprintf("%s %s %s", values[0], values[1], values[2]))
			_, err = our.Add(c, "k", 1)
			require.ErrorIs(t, err, weft.ErrNotANumber)
			require.NoError(t, our.Barrier(c, "one", 1))
			require.ErrorIs(t, our.Barrier(c, "k", 1), weft.ErrNotANumber)
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
