package ptx

import (
	"sync"

	"github.com/weft-project/weft/internal/ptx/compile"
	"github.com/weft-project/weft/internal/ptx/simt"
	"github.com/weft-project/weft/internal/ptx/syntax"
)

// Texts are modules that machines have compiled, by their text, so that each is compiled once for
// all machines that have the same Texts. The zero value is ready; it is safe for concurrent use.
type Texts struct {
	mu    sync.Mutex
	all   map[want]func() (*compiled, error)
	bytes int // of their texts
}

// mostText is how many bytes of text are kept. Beyond those, all is forgotten.
const mostText = 24 << 20

// want is a text, and how it is compiled.
type want struct {
	text    string
	metered bool
}

// compiled is a module that no machine has yet. It is never changed.
type compiled struct {
	target  int
	exact   bool
	vars    []*syntax.Variable
	kernels func() (map[string]*simt.Kernel, error) // compiles them, once
}

// parsed reads a text, or waits until it is read.
func (t *Texts) parsed(w want) (*compiled, error) {
	if t == nil {
		return w.parse()
	}
	return t.once(w)()
}

// once is what reads a text once.
func (t *Texts) once(w want) func() (*compiled, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.all[w]; f != nil {
		return f
	}
	if t.bytes += len(w.text); t.all == nil || t.bytes > mostText {
		t.all, t.bytes = map[want]func() (*compiled, error){}, len(w.text)
	}
	f := sync.OnceValues(w.parse)
	t.all[w] = f
	return f
}

func (w want) parse() (*compiled, error) {
	src, err := syntax.Parse(w.text)
	if err != nil {
		return nil, err
	}
	return &compiled{src.Target, src.Exact, src.Vars, sync.OnceValues(func() (map[string]*simt.Kernel, error) { return w.compile(src) })}, nil
}

func (w want) compile(src *syntax.Source) (_ map[string]*simt.Kernel, err error) {
	kernels := map[string]*simt.Kernel{}
	for _, f := range src.Funcs {
		if !f.Entry || !f.Defined {
			continue
		}
		if kernels[f.Name], err = compile.Kernel(src, f, w.metered); err != nil {
			return nil, err
		}
	}
	return kernels, nil
}
