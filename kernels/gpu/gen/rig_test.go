package gen

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/ptx"
	"github.com/weft-project/weft/kernels"
)

// rig computes what this package writes on the interpreter, one instruction at a time: as little of a backend as shows results.
type rig struct {
	*cuda.GPU
	align int
}

// newRig is a device whose operands and results lie at multiples of align.
func newRig(t testing.TB, align int) *device.Accelerator {
	g, err := cuda.NewGPU(ptx.New(ptx.Config{Races: true}))
	require.NoError(t, err)
	d := device.Over(device.CUDA(0), &rig{g, align}, 0)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func (r *rig) Backend() kernels.Backend { return r }
func (r *rig) Name() string             { return "rig" }

func (r *rig) Assemble([]kernels.Call, []int, []bool) (kernels.Routine, error) {
	return nil, kernels.ErrNoBackend
}

func (r *rig) Prepare(i kernels.Instr, in []kernels.Type) (kernels.Kernel, error) {
	out, err := i.Infer(in)
	if err != nil {
		return nil, err
	}
	c, err := Case{i, in, r.align}.Code()
	if err != nil {
		return nil, err
	}
	text, names := Module(c.Kernels)
	m, err := r.Driver().Load([]byte(text))
	if err != nil {
		return nil, err
	}
	return &prepared{r, c, m, names, in, out}, nil
}

type prepared struct {
	r       *rig
	c       Code
	m       cuda.Module
	names   []string
	in, out []kernels.Type
}

// Run runs on copies that lie no better than the case says, and copies back.
func (p *prepared) Run(outs, ins []*device.Buffer) error {
	s, d := p.r.Compute(), p.r.Driver()
	var taken []uintptr
	shift := uintptr(p.r.align % 16)
	take := func(n int) (uintptr, error) {
		at, err := d.Alloc(n + 16)
		taken = append(taken, at)
		return at + shift, err
	}
	at := map[*device.Buffer]uintptr{}
	for _, b := range append(ins, outs...) {
		if _, there := at[b]; there || b.Len() == 0 {
			continue
		}
		a, err := take(b.Len())
		if err != nil {
			return err
		}
		if err := s.Copy(a, b.Addr(), b.Len()); err != nil {
			return err
		}
		at[b] = a
	}
	scratch, err := take(p.c.Scratch)
	if err != nil {
		return err
	}
	var l cuda.List
	for k, kn := range p.c.Kernels {
		f, err := p.m.Func(p.names[k], 0)
		if err != nil {
			return err
		}
		l.Add(f, [3]uint32{uint32(kn.Blocks[0]), uint32(kn.Blocks[1]), 1}, [3]uint32{uint32(kn.Block), 1, 1}, 0)
		for _, a := range kn.Params {
			switch a.Of {
			case In:
				l.Addr(at[ins[a.Index]] + uintptr(a.Off))
			case Out:
				l.Addr(at[outs[a.Index]] + uintptr(a.Off))
			default:
				l.Addr(scratch - shift + uintptr(a.Off))
			}
		}
	}
	if err := s.Run(&l); err != nil {
		return err
	}
	for _, b := range outs {
		if b.Len() > 0 {
			if err := s.Copy(b.Addr(), at[b], b.Len()); err != nil {
				return err
			}
		}
	}
	if err := s.Sync(); err != nil {
		return err
	}
	for _, a := range taken {
		if err := d.Free(a); err != nil {
			return err
		}
	}
	return p.m.Unload()
}
