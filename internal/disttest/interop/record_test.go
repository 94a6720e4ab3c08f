//go:build interop

package interop

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var record = flag.Bool("record", false, "write what the two ends of PyTorch say to each other to store/testdata")

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

// greeting is VALIDATE and PING, of whose number the answer is a copy.
var greeting = []byte{0x00, 0xce, 0xf7, 0x85, 0x3c, 0x0d}

// text has a line for each turn: who, and bytes.
func (x *tape) text(w io.Writer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, b := range x.said {
		if i < 2 && bytes.HasPrefix(x.said[0], greeting) {
			copy(b[len(greeting)*(1-i):], "\x01\x02\x03\x04") // it was a process's number
		}
		fmt.Fprintf(w, "%c %s\n", "><"[i%2], hex.EncodeToString(b))
	}
}

// TestPyTorchsClientSaysWhatWasRecorded keeps the recordings true that package store replays to our server.
func TestPyTorchsClientSaysWhatWasRecorded(t *testing.T) {
	p := start(t)
	at, tapes := between(t, p.theirs(t, nil))
	c := p.client(t, at, map[string]any{"world_size": 1, "wait_for_workers": true})
	for _, x := range p.everyCall() {
		if first, _ := append(x.args, "")[0].(string); first == "long" || first == "text" {
			continue // what is long, and what ends the connection
		}
		c.try(t, x.method, x.args...)
	}
	var got bytes.Buffer
	for _, x := range tapes() { // that of the callbacks is silent
		x.text(&got)
	}
	path := filepath.Join("..", "..", "..", "store", "testdata", fmt.Sprintf("torch-%d.%d.talk", p.major, p.minor))
	if *record {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, got.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err, "record this release with -record")
	require.Equal(t, string(want), got.String())
}
