//go:build gpu && linux

package fakecuda

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/ptx/simt"
)

// Interpreter is a [Machine] that runs the PTX text itself, on package ptx. A kernel's fault is its
// error, and the next kernels run again.
func Interpreter() Machine { return &interpreter{} }

// interpreter has a machine of package ptx, to which it lends the GPU's memory for each launch.
type interpreter struct {
	mu    sync.Mutex
	m     *ptx.Machine
	s     cuda.Stream
	count int       // of machines: one that had a fault is done with
	texts ptx.Texts // of all of them
}

// ready gives the stream of a machine that is well; in.mu is held.
func (in *interpreter) ready() (err error) {
	if in.m == nil {
		in.m = ptx.New(ptx.Config{Texts: &in.texts})
		in.s, err = in.m.Stream()
		in.count++
	}
	return err
}

// loaded is PTX text on a machine.
type loaded struct {
	in    *interpreter
	text  string
	mod   cuda.Module
	count int // of the machine that it is on
}

// interpreted is a kernel of it.
type interpreted struct {
	l      *loaded
	name   string
	shared int // the most that a launch gave it
	f      cuda.Func
	shape  ptx.Shape
	count  int
}

// Load is Machine's.
func (in *interpreter) Load(text string) (Image, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	l := &loaded{in: in, text: text}
	return l, l.load()
}

func (l *loaded) load() error {
	if err := l.in.ready(); err != nil || l.count == l.in.count {
		return err
	}
	mod, err := l.in.m.Load([]byte(l.text))
	l.mod, l.count = mod, l.in.count
	return err
}

// Find is Image's.
func (l *loaded) Find(name string) Kernel {
	l.in.mu.Lock()
	defer l.in.mu.Unlock()
	k := &interpreted{l: l, name: name}
	if k.lookUp() != nil {
		return nil
	}
	return k
}

func (k *interpreted) lookUp() (err error) {
	if err := k.l.load(); err != nil || k.f != nil && k.count == k.l.count {
		return err
	}
	if k.f, err = k.l.mod.Func(k.name, k.shared); err != nil {
		return err
	}
	k.shape, _ = ptx.ShapeOf(k.f)
	k.count = k.l.count
	return nil
}

// Params is Kernel's.
func (k *interpreted) Params() []Param {
	var out []Param
	for n := range k.shape.At {
		out = append(out, Param{k.shape.At[n], k.shape.Size[n]})
	}
	return out
}

// Shared is Kernel's.
func (k *interpreted) Shared() int { return k.shape.Shared }

// Run is Kernel's.
func (k *interpreted) Run(l Launch) error {
	in := k.l.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if l.Shared > k.shared {
		k.shared, k.f = l.Shared, nil
	}
	if err := k.lookUp(); err != nil {
		return err
	}
	pieces := make([]simt.Piece, len(l.Memory))
	for n, p := range l.Memory {
		pieces[n] = simt.Piece(p)
	}
	in.m.Lend(pieces)
	err := in.s.Run(&cuda.List{Launches: []cuda.Launch{{Func: k.f, Grid: l.Grid, Block: l.Block, Shared: uint32(l.Shared), Len: len(l.Args)}}, Args: l.Args})
	in.m.Lend(nil)
	if fault := (*simt.Fault)(nil); errors.As(err, &fault) {
		in.m = nil
	}
	return err
}
