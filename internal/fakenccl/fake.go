//go:build cgo && linux

package fakenccl

import (
	_ "embed" // the source
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/ebitengine/purego"
)

//go:embed nccl.c
var source []byte

// Fake is a library that was built, opened by this process beside whoever else opens it.
type Fake struct {
	Path string

	current    func(gpu int32)
	plant      func(function string, rank, hangs, code int32) int32
	mend       func()
	calls      func(function string) int64
	pending    func() int64
	record     func(k int32, out *int64) int32
	misuses    func() int32
	registered func() int32
	config     func(out *int64)
	capture    func(gpu int32, stream uintptr) int32
	end        func(graph int32) int32
	replay     func(graph int32)
}

// Maker builds libraries, each version once. Its zero value is ready.
type Maker struct {
	mu   sync.Mutex
	made map[int][]byte
}

// Build puts a fake of a version (NCCL's number) into a folder, and opens it. Each folder's is a
// library of its own.
func (m *Maker) Build(dir string, version int) (*Fake, error) {
	image, err := m.image(dir, version)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		return nil, err
	}
	return open(path)
}

func (m *Maker) image(dir string, version int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if image, ok := m.made[version]; ok {
		return image, nil
	}
	from, to := filepath.Join(dir, "nccl.c"), filepath.Join(dir, "made.so")
	if err := os.WriteFile(from, source, 0o600); err != nil {
		return nil, err
	}
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "gcc"
	}
	out, err := exec.Command(cc, "-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-shared", "-fPIC", fmt.Sprintf("-DVERSION=%d", version), "-o", to, from, "-lpthread").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("compiling the fake NCCL: %w: %s", err, out)
	}
	image, err := os.ReadFile(to)
	if err != nil {
		return nil, err
	}
	if m.made == nil {
		m.made = map[int][]byte{}
	}
	m.made[version] = image
	return image, nil
}

func open(path string) (*Fake, error) {
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	f := &Fake{Path: path}
	for name, to := range map[string]any{"current": &f.current, "plant": &f.plant, "mend": &f.mend, "calls": &f.calls, "pending": &f.pending, "record": &f.record,
		"misuses": &f.misuses, "registered": &f.registered, "config": &f.config, "capture": &f.capture, "end": &f.end, "replay": &f.replay} {
		purego.RegisterLibFunc(to, lib, "weft_fake_"+name)
	}
	return f, nil
}

// Plant has a function fail with a result from now on, on one rank or on all (-1). Of
// ncclCommGetAsyncError it is the error that it tells. Four plans at once are the most.
func (f *Fake) Plant(function string, rank, code int) { f.plant(function, int32(rank), 0, int32(code)) }

// Hang has a function hang until its communicator is aborted, or Mend is called.
func (f *Fake) Hang(function string, rank int) { f.plant(function, int32(rank), 1, 0) }

// Mend ends what was planted; what hangs returns.
func (f *Fake) Mend() { f.mend() }

// Calls is how often a function was called.
func (f *Fake) Calls(function string) int { return int(f.calls(function)) }

// Pending is how much was submitted and is not done.
func (f *Fake) Pending() int { return int(f.pending()) }

// Misuses is how many calls there were with a communicator that was freed.
func (f *Fake) Misuses() int { return int(f.misuses()) }

// Registered is how many pieces of memory are registered.
func (f *Fake) Registered() int { return int(f.registered()) }

// Config is the last configuration that came: size, magic, version, and the ints behind them.
func (f *Fake) Config() (c [29]int) {
	var raw [29]int64
	f.config(&raw[0])
	for k, x := range raw {
		c[k] = int(x)
	}
	return c
}

// Graph is what was submitted to a GPU's stream while that was captured.
type Graph struct {
	of *Fake
	k  int32
}

// Capture captures what do submits to a stream of a GPU: it is recorded, and done by Replay alone.
// Sixteen graphs of 32 submissions are the most.
func (f *Fake) Capture(gpu int, stream uintptr, do func() error) (Graph, error) {
	k := f.capture(int32(gpu), stream)
	if k < 0 {
		return Graph{}, errors.New("more graphs than the fake has room for")
	}
	err := do()
	if f.end(k) == 0 && err == nil {
		err = errors.New("a graph of nothing")
	}
	return Graph{f, k}, err
}

// Replay submits it.
func (g Graph) Replay() { g.of.replay(g.k) }

// Record is one operation that was submitted.
type Record struct {
	Comm   int // a number for each communicator
	Rank   int
	GPU    int
	Kind   int // in the order of nccl.Kind
	Count  int
	Root   int
	Stream uintptr
	Thread int
}

// Records are all operations that were submitted, from the first on.
func (f *Fake) Records() (all []Record) {
	for {
		var r [8]int64
		if f.record(int32(len(all)), &r[0]) == 0 {
			return all
		}
		all = append(all, Record{int(r[0]), int(r[1]), int(r[2]), int(r[3]), int(r[4]), int(r[5]), uintptr(r[6]), int(r[7])})
	}
}

// GPU is one of the fake's: a nccl.Binder.
type GPU struct {
	Of     *Fake
	Number int
}

// Within makes a call on the GPU.
func (g GPU) Within(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.Of.current(int32(g.Number))
	return call()
}
