//go:build interop

package interop

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var record = flag.Bool("record", false, "write what the two ends of PyTorch say to each other to store/internal/talktest/testdata")

// tape is what goes over one connection: in turns what the client and what the server says.
type tape struct {
	mu   sync.Mutex
	said [][]byte // by the client where the index is even
}

func (x *tape) hear(server int, b []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.said)%2 == server { // it is the other's turn, or the first
		x.said = append(x.said, nil)
	}
	last := len(x.said) - 1
	x.said[last] = append(x.said[last], b...)
}

// between listens and passes on to a server, with a tape of each connection.
func between(t *testing.T, at server) (server, func() []*tape) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var mu sync.Mutex
	var all []*tape
	var wg sync.WaitGroup
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		wg.Wait()
	})
	pass := func(x *tape, server int, from, to net.Conn) {
		defer to.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			if n > 0 {
				x.hear(server, b[:n])
				_, _ = to.Write(b[:n])
			}
			if err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", at.addr())
			if err != nil {
				t.Error(err)
				return
			}
			x := new(tape)
			mu.Lock()
			all = append(all, x)
			mu.Unlock()
			wg.Go(func() { pass(x, 0, client, far) })
			wg.Go(func() { pass(x, 1, far, client) })
		}
	})
	return server{portOf(t, l.Addr().String())}, func() []*tape {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// spoken is the first tape of a client that has said something.
func spoken(all []*tape) *tape {
	return all[slices.IndexFunc(all, func(x *tape) bool { return len(x.turns()) > 0 })]
}

// turns is what was said until now.
func (x *tape) turns() [][]byte {
	x.mu.Lock()
	defer x.mu.Unlock()
	var all [][]byte
	for _, b := range x.said {
		all = append(all, bytes.Clone(b))
	}
	return all
}

// text has a line for each turn: who, and bytes.
func (x *tape) text(w io.Writer) {
	said := x.turns()
	for i, b := range said {
		if i < 2 && bytes.HasPrefix(said[0], greeting) {
			copy(b[len(greeting)*(1-i):], "\x01\x02\x03\x04") // it was a process's number
		}
		fmt.Fprintf(w, "%c %s\n", "><"[i%2], hex.EncodeToString(b))
	}
}

// TestPyTorchsClientSaysWhatWasRecorded keeps the recordings true that package store replays to our
// server. A release whose ends say what those of another say has no recording of its own.
func TestPyTorchsClientSaysWhatWasRecorded(t *testing.T) {
	p := start(t)
	at, tapes := between(t, p.theirs(t, nil))
	c := p.client(t, at, map[string]any{"world_size": 1, "wait_for_workers": true})
	listed := false
	for _, x := range p.everyCall() {
		first, _ := append(x.args, "")[0].(string)
		if first == "long" || first == "text" || x.method == "list_keys" && listed {
			continue // what is long, what ends the connection, and a list of keys in no order
		}
		listed = listed || x.method == "list_keys"
		c.try(t, x.method, x.args...)
	}
	var got bytes.Buffer
	for _, x := range tapes() { // that of the callbacks is silent
		x.text(&got)
	}
	known, release := recordings(t), regexp.MustCompile(`^\d+\.\d+`).FindString(p.version)
	said := slices.Contains(slices.Collect(maps.Values(known)), got.String())
	if *record && !said {
		require.NoError(t, os.WriteFile(filepath.Join(talks, "torch-"+release+".talk"), got.Bytes(), 0o644))
		return
	}
	if want, ok := known[release]; ok {
		require.Equal(t, want, got.String())
	}
	require.True(t, said, "nobody is known to say what this release says: record it with -record")
}

// talks is where the recordings are.
const talks = "../../../store/internal/talktest/testdata"

// recordings are the conversations by release.
func recordings(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(talks, "torch-*.talk"))
	require.NoError(t, err)
	all := map[string]string{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		release := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "torch-"), ".talk")
		all[release] = string(content)
	}
	return all
}
