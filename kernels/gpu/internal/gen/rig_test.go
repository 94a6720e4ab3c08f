package gen

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/internal/gpumem"
	"github.com/weft-project/weft/internal/ptx"
	"github.com/weft-project/weft/internal/testgpu"
	"github.com/weft-project/weft/kernels"
)

// rig computes what this package writes on the interpreter, one instruction at a time: as little of
// a backend as shows results.
type rig struct {
	*gpumem.GPU
	like writer
}

// newRig is a device whose kernels are written as by a writer like this one.
func newRig(t testing.TB, like writer) *device.Accelerator {
	g, err := gpumem.NewGPU(testgpu.Open(t, ptx.Config{Races: true}))
	require.NoError(t, err)
	d := device.Over(device.CUDA(0), &rig{g, like}, 0)
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
	w := r.like
	if err := w.instr(i, in, out); err != nil {
		return nil, err
	}
	text, names := Module(w.Kernels)
	m, err := r.Driver().Load([]byte(text))
	if err != nil {
		return nil, err
	}
	return &prepared{r, w.Code, m, names}, nil
}

type prepared struct {
	r     *rig
	c     Code
	m     cuda.Module
	names []string
}

// Run runs on copies that lie no better than places do, and copies back.
func (p *prepared) Run(outs, ins []*device.Buffer) error {
	d := p.r.Driver()
	if err := p.r.Sync(); err != nil {
		return err
	}
	s, err := d.Stream()
	if err != nil {
		return err
	}
	var errs []error
	var taken []uintptr
	take := func(n int) uintptr {
		at, err := d.Alloc(n + kernels.PlaceAlign)
		errs, taken = append(errs, err), append(taken, at)
		return at
	}
	at := map[*device.Buffer]uintptr{}
	for _, b := range slices.Concat(ins, outs) {
		if _, there := at[b]; !there && b.Len() > 0 {
			at[b] = take(b.Len()) + kernels.PlaceAlign
			errs = append(errs, s.Copy(at[b], b.Addr(), b.Len()))
		}
	}
	scratch := take(p.c.Scratch)
	var l cuda.List
	for k, kn := range p.c.Kernels {
		f, err := p.m.Func(p.names[k], 0)
		errs = append(errs, err)
		l.Add(f, [3]uint32{uint32(kn.Blocks[0]), uint32(kn.Blocks[1]), 1}, [3]uint32{uint32(kn.Block), 1, 1}, 0)
		for _, a := range kn.Params {
			base := scratch
			switch a.Of {
			case In:
				base = at[ins[a.Index]]
			case Out:
				base = at[outs[a.Index]]
			}
			l.Addr(base + uintptr(a.Off))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	errs = append(errs, s.Run(&l))
	for _, b := range outs {
		if b.Len() > 0 {
			errs = append(errs, s.Copy(b.Addr(), at[b], b.Len()))
		}
	}
	errs = append(errs, s.Sync(), s.Close())
	for _, a := range taken {
		errs = append(errs, d.Free(a))
	}
	return errors.Join(append(errs, p.m.Unload())...)
}
