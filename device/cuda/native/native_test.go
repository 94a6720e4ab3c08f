//go:build gpu && linux && (amd64 || arm64)

package native_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/fakecuda"
)

// gpu is the fake driver that all tests of this process use.
var gpu *fakecuda.Library

// children is what a process does that a test started, by WEFT_TEST_CHILD.
var children = map[string]func() error{
	"open": openChild, "queues": queuesChild, "cache": cacheChild, "ipc": ipcChild, "noblas": noBLASChild, "eights": eightsChild, "walk": walkChild,
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if child := os.Getenv("WEFT_TEST_CHILD"); child != "" {
		if err := children[child](); err != nil {
			return fail(err)
		}
		return 0
	}
	dir, err := os.MkdirTemp("", "weft-fake")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if gpu, err = fakecuda.Open(dir); err != nil {
		return fail(err)
	}
	gpu.Use(machine{fakecuda.Interpreter()})
	return m.Run()
}

// open opens a GPU for a test, which must leave nothing on it.
func open(t *testing.T) cuda.Driver {
	t.Helper()
	before := gpu.Live()
	d, err := native.Open(0)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, d.Close())
		require.Equal(t, before, gpu.Live(), "allocations, pinned memory and streams of this test")
	})
	return d
}

// machine runs kernels that are written in Go, where the text is this tests' and only names them,
// and others by the interpreter.
type machine struct{ others fakecuda.Machine }

type image struct{ entries map[string]bool }

// kernel is a function of two addresses and a number, which all kernels of these tests have.
type kernel func(l fakecuda.Launch, words func(at uint64) []byte, a, b uint64, n uint32) error

var entry = regexp.MustCompile(`\.entry (\w+)\(`)

func (m machine) Load(text string) (fakecuda.Image, error) {
	if !strings.HasPrefix(text, ptx) {
		return m.others.Load(text)
	}
	return named(text), nil
}

func named(text string) image {
	m := image{map[string]bool{}}
	for _, found := range entry.FindAllStringSubmatch(text, -1) {
		m.entries[found[1]] = true
	}
	return m
}

func (m image) Find(name string) fakecuda.Kernel {
	if k := kernels[name]; k != nil && m.entries[name] {
		return k
	}
	return nil
}

func (kernel) Params() []fakecuda.Param {
	return []fakecuda.Param{{At: 0, Size: 8}, {At: 8, Size: 8}, {At: 16, Size: 4}}
}
func (kernel) Shared() int { return 1024 }

func (k kernel) Run(l fakecuda.Launch) error {
	words := func(at uint64) []byte {
		for _, p := range l.Memory {
			if at >= uint64(p.At) && at < uint64(p.At)+uint64(len(p.Mem)) {
				return p.Mem[at-uint64(p.At):]
			}
		}
		return nil
	}
	le := binary.LittleEndian
	return k(l, words, le.Uint64(l.Args), le.Uint64(l.Args[8:]), le.Uint32(l.Args[16:]))
}

// gate holds the kernel "hold" until it is opened, so that what stands behind it in a stream has
// not happened.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

// close makes the gate hold, until the function that it gives.
func (g *gate) close() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
	return sync.OnceFunc(func() { close(g.open) })
}

func (g *gate) pass() {
	g.mu.Lock()
	c := g.open
	g.mu.Unlock()
	<-c
}

var held gate

var kernels = map[string]kernel{
	// add adds n to each of the words at a, and writes them to b.
	"add": func(_ fakecuda.Launch, words func(uint64) []byte, a, b uint64, n uint32) error {
		from, to := words(a), words(b)
		for k := 0; k+4 <= len(from); k += 4 {
			binary.LittleEndian.PutUint32(to[k:], binary.LittleEndian.Uint32(from[k:])+n)
		}
		return nil
	},
	// double doubles the first word at a.
	"double": func(_ fakecuda.Launch, words func(uint64) []byte, a, _ uint64, n uint32) error {
		at := words(a)
		binary.LittleEndian.PutUint32(at, 2*binary.LittleEndian.Uint32(at)+n)
		return nil
	},
	"hold": func(fakecuda.Launch, func(uint64) []byte, uint64, uint64, uint32) error { held.pass(); return nil },
	"wild": func(fakecuda.Launch, func(uint64) []byte, uint64, uint64, uint32) error {
		return errors.New("a wild address, as the test wants")
	},
}

const ptx = ".version 7.8 .entry add( .entry double( .entry hold( .entry wild("

// find loads the tests' kernels and finds one.
func find(t *testing.T, d cuda.Driver, name string) cuda.Func {
	t.Helper()
	m, err := d.Load([]byte(ptx))
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Unload() })
	f, err := m.Func(name, 0)
	require.NoError(t, err)
	return f
}

// add adds a launch of one thread.
func add(l *cuda.List, f cuda.Func, a, b uintptr, n uint32) {
	l.Add(f, [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0)
	l.Addr(a)
	l.Addr(b)
	l.U32(n)
}

// bench is what most tests want: a stream, memory on the GPU and pinned memory, of 256 bytes.
type bench struct {
	d      cuda.Driver
	s      cuda.Stream
	at     uintptr
	pinned []byte
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{d: open(t)}
	var errs [3]error
	b.s, errs[0] = b.d.Stream()
	b.at, errs[1] = b.d.Alloc(256)
	b.pinned, errs[2] = b.d.Pin(256)
	require.NoError(t, errors.Join(errs[:]...))
	t.Cleanup(func() {
		gpu.Mend()
		require.NoError(t, errors.Join(b.s.Close(), b.d.Free(b.at), b.d.Unpin(b.pinned)))
	})
	return b
}

// word reads the first word of the GPU's memory.
func (b *bench) word(t *testing.T) uint32 {
	t.Helper()
	require.NoError(t, b.s.CopyOut(b.pinned, b.at))
	require.NoError(t, b.s.Sync())
	return binary.LittleEndian.Uint32(b.pinned)
}
