package gpu

import (
	"errors"
	"sync"

	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

// maxWritten bounds how many cases' kernels are remembered.
const maxWritten = 4096

// written is what was generated, by case: writing it takes longer than all else that preparing an
// instruction does.
type written struct {
	mu    sync.Mutex
	codes map[string]*code
}

// generate writes the kernels of an instruction that goes element by element. The code is shared.
func (b *backend) generate(i kernels.Instr, in []kernels.Type) (*code, error) {
	c := gen.Case{Instr: i, In: in}
	key := c.Key()
	b.written.mu.Lock()
	known := b.written.codes[key]
	b.written.mu.Unlock()
	if known != nil {
		return known, nil
	}
	g, err := c.Code()
	if errors.Is(err, gen.ErrUnknown) {
		return nil, unknown(i)
	}
	if err != nil {
		return nil, err
	}
	made := &code{scratch: g.Scratch}
	for _, k := range g.Kernels {
		l := made.call(nil, k.Blocks[0], k.Block)
		l.grid[1], l.body = uint32(k.Blocks[1]), k.Body
		for _, p := range k.Params {
			switch p.Of {
			case gen.In:
				l.arg(inArg(p.Index).plus(uint64(p.Off)))
			case gen.Out:
				l.arg(outArg(p.Index).plus(uint64(p.Off)))
			case gen.Scratch:
				l.arg(scratchArg(p.Off))
			}
		}
	}
	b.written.mu.Lock()
	defer b.written.mu.Unlock()
	if len(b.written.codes) >= maxWritten || b.written.codes == nil {
		b.written.codes = map[string]*code{}
	}
	b.written.codes[key] = made
	return made, nil
}
