//go:build interop

package interop

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/peer.py
var script string

var python = flag.String("python", "python3", "an interpreter that has PyTorch")

// torch is a process of PyTorch's. It is safe for concurrent use.
type torch struct {
	version string
	methods map[string]bool // of TCPStore
	known   *manner         // once it has been asked for
	in      io.WriteCloser

	mu      sync.Mutex
	last    int
	waiting map[int]chan answer
}

// command is what peer.py understands.
type command struct {
	ID     int            `json:"id"`
	Do     string         `json:"do"`
	Object string         `json:"object"`
	Class  string         `json:"class"`
	Method string         `json:"method"`
	Args   []any          `json:"args"`
	Named  map[string]any `json:"named"`
}

type answer struct {
	ID    int
	Value any
	Error string
	Type  string
}

// environment is that of PyTorch's processes. Its servers ask the resolver for the name of each who
// connects, in the one thread that serves all, and see 127.0.0.1 as ::ffff:127.0.0.1, which no
// hosts file has: where a resolver drops one question in fifty, as some do with many at a time, it
// halts them for five seconds unless told otherwise. No client can spare them that but by
// connecting seldom.
func environment() []string {
	return append(os.Environ(), "TORCH_CPP_LOG_LEVEL=ERROR", "RES_OPTIONS=timeout:1 attempts:1")
}

// start starts a process, which ends with the test.
func start(t *testing.T) *torch {
	t.Helper()
	cmd := exec.Command(*python, "-c", script)
	cmd.Stderr, cmd.Env = os.Stderr, environment()
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start(), "choose an interpreter that has PyTorch with PYTHON=")
	p := &torch{in: in, waiting: map[int]chan answer{}}
	hello, ended := make(chan answer, 1), make(chan struct{})
	p.waiting[0] = hello
	go func() {
		defer close(ended)
		p.listen(out)
	}()
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		<-ended
		require.NoError(t, cmd.Wait())
	})
	first, ok := <-hello
	require.True(t, ok, "%s has no PyTorch: choose another interpreter with PYTHON=", *python)
	says := first.Value.(map[string]any)
	p.version, p.methods = text(says["version"]), map[string]bool{}
	for _, name := range says["methods"].([]any) {
		p.methods[text(name)] = true
	}
	t.Logf("PyTorch %s", p.version)
	return p
}

func (p *torch) listen(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var a answer
		d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		d.UseNumber() // as some have 64 bits
		if err := d.Decode(&a); err != nil {
			fmt.Fprintf(os.Stderr, "PyTorch says %q\n", lines.Text())
			continue
		}
		p.mu.Lock()
		p.waiting[a.ID] <- a
		delete(p.waiting, a.ID)
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ch := range p.waiting {
		close(ch)
	}
	p.waiting = nil
}

// can says whether the release's TCPStore has a method.
func (p *torch) can(method string) bool { return p.methods[method] }

// send sends a command and returns at once.
func (p *torch) send(t *testing.T, cmd command) <-chan answer {
	t.Helper()
	ch := make(chan answer, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.NotNil(t, p.waiting, "PyTorch's process has ended")
	p.last++
	cmd.ID = p.last
	p.waiting[cmd.ID] = ch
	line, err := json.Marshal(cmd)
	require.NoError(t, err)
	_, err = p.in.Write(append(line, '\n'))
	require.NoError(t, err)
	return ch
}

func (p *torch) ask(t *testing.T, cmd command) answer {
	t.Helper()
	a, ok := <-p.send(t, cmd)
	require.True(t, ok, "PyTorch's process has ended")
	return a
}

// store is an object in the process, one of PyTorch's stores.
type store struct {
	*torch
	name string
}

// open makes a store, and drops it at the end of the test.
func (p *torch) open(t *testing.T, class string, args []any, named map[string]any) store {
	t.Helper()
	s, a := p.tryOpen(t, class, args, named)
	require.Empty(t, a.Error)
	return s
}

func (p *torch) tryOpen(t *testing.T, class string, args []any, named map[string]any) (store, answer) {
	t.Helper()
	p.mu.Lock()
	s := store{p, fmt.Sprint(class, p.last)}
	p.mu.Unlock()
	if named == nil {
		named = map[string]any{}
	}
	a := p.ask(t, command{Do: "new", Object: s.name, Class: class, Args: args, Named: named})
	if a.Error == "" {
		t.Cleanup(func() { s.drop(t) })
	}
	return s, a
}

// drop ends the object's life, once.
func (s store) drop(t *testing.T) {
	t.Helper()
	s.ask(t, command{Do: "drop", Object: s.name})
}

// clone makes PyTorch's own copy of a store, and drops it at the end of the test.
func (s store) clone(t *testing.T) store {
	t.Helper()
	another := store{s.torch, s.name + "'s clone"}
	a := s.ask(t, command{Do: "clone", Object: s.name, Args: []any{another.name}})
	require.Empty(t, a.Error)
	t.Cleanup(func() { another.drop(t) })
	return another
}

func (s store) begin(t *testing.T, method string, args ...any) <-chan answer {
	t.Helper()
	all := make([]any, len(args))
	for i := range args {
		all[i] = latin(args[i])
	}
	return s.send(t, command{Do: "call", Object: s.name, Method: method, Args: all})
}

func (s store) try(t *testing.T, method string, args ...any) answer {
	t.Helper()
	a, ok := <-s.begin(t, method, args...)
	require.True(t, ok, "PyTorch's process has ended")
	return a
}

// call requires that there is no error.
func (s store) call(t *testing.T, method string, args ...any) any {
	t.Helper()
	a := s.try(t, method, args...)
	require.Empty(t, a.Error, "%s%v", method, args)
	return a.Value
}

func (s store) read(t *testing.T, property string) any {
	t.Helper()
	return s.ask(t, command{Do: "read", Object: s.name, Method: property}).Value
}

// text is a value as text, of which PyTorch's bytes are a case.
func text(v any) string {
	if s, ok := v.(string); ok {
		var b []byte
		for _, c := range s {
			b = append(b, byte(c))
		}
		return string(b)
	}
	return fmt.Sprint(v)
}

// latin is v with its bytes as runes, of which JSON has all.
func latin(v any) any {
	switch v := v.(type) {
	case string:
		var runes []rune
		for _, c := range []byte(v) {
			runes = append(runes, rune(c))
		}
		return string(runes)
	case []string:
		all := make([]any, len(v))
		for i := range v {
			all[i] = latin(v[i])
		}
		return all
	}
	return v
}

// seconds is a duration for peer.py.
func seconds(s float64) map[string]any { return map[string]any{"seconds": s} }
