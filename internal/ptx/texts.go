package ptx

import (
	"fmt"
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

// want is a text, and for what machine it is compiled.
type want struct {
	text    string
	arch    int
	metered bool
}

// compiled is a module that no machine has yet. It is never changed.
type compiled struct {
	vars    []*syntax.Variable
	kernels map[string]*simt.Kernel
}

// compiled compiles a text, or waits until it is compiled.
func (t *Texts) compiled(w want) (*compiled, error) {
	if t == nil {
		return w.compile()
	}
	return t.once(w)()
}

// once is what compiles a text once.
func (t *Texts) once(w want) func() (*compiled, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.all[w]; f != nil {
		return f
	}
	if t.bytes += len(w.text); t.all == nil || t.bytes > mostText {
		t.all, t.bytes = map[want]func() (*compiled, error){}, len(w.text)
	}
	f := sync.OnceValues(w.compile)
	t.all[w] = f
	return f
}

func (w want) compile() (*compiled, error) {
	src, err := syntax.Parse(w.text)
	if err != nil {
		return nil, err
	}
	if src.Target == 0 || src.Target > w.arch || src.Exact && src.Target != w.arch {
		return nil, fmt.Errorf("text for sm_%d on a machine of %d", src.Target, w.arch)
	}
	for _, v := range src.Vars {
		if v.Extern && v.Space != "shared" {
			return nil, fmt.Errorf("line %d: %s is of another module", v.Line, v.Name)
		}
	}
	c := &compiled{vars: src.Vars, kernels: map[string]*simt.Kernel{}}
	for _, f := range src.Funcs {
		if !f.Entry || !f.Defined {
			continue
		}
		if c.kernels[f.Name], err = compile.Kernel(src, f, w.metered); err != nil {
			return nil, err
		}
	}
	return c, nil
}
