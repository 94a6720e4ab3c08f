package gpu

import (
	"errors"
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
)

// hopperArch is the one compute capability, times ten, that has what attention_h.cuh uses.
const hopperArch = 90

// encode writes a map of what lies at an address among the arguments of a frame, where it is not
// there from a run before.
func (f *frame) encode(p patch, at uintptr) error {
	if f.maps[p.off] == (mapped{p.tiles, at}) {
		return nil
	}
	x := *p.tiles
	x.At = at
	raw, err := f.of.backend.encode(x)
	if err != nil {
		return err
	}
	f.list.Fill(p.off, raw[:])
	if f.maps == nil {
		f.maps = map[int]mapped{}
	}
	f.maps[p.off] = mapped{p.tiles, at}
	return nil
}

// encode has the driver encode a map.
func (b *backend) encode(x cuda.TensorMap) (raw [cuda.MapBytes]byte, err error) {
	d, ok := b.gpu.Driver().(cuda.Mapper)
	if !ok {
		return raw, cuda.ErrNoMaps
	}
	return d.EncodeMap(x)
}

// fours is the shape of attention_h.cuh's kernels, by their extent: rows of a piece of work,
// threads and shared memory; and keys of a tile.
func fours(extent int) (s shape, keys int) {
	const quads, stages, align = 2, 2, 1024
	keys = 128
	rows := quads*64 + 2*stages*keys
	return shape{quads * 64, extent, 128 * (quads + 1), align + rows*extent*2}, keys
}

// byFours is forward by products of four warps, where that was asked for and can be. It is not done
// elsewhere, which is counted.
func (a *attention) byFours() (done bool, err error) {
	if !a.cfg.Hopper || !a.units || min(a.b, a.h, a.t) == 0 {
		return false, nil
	}
	why, err := a.callFours()
	if why == "" && err == nil {
		a.tally.add(workAttention, byHopper, "", nil)
		return true, nil
	}
	a.tally.add(workAttention, byUnits, why, err)
	return false, nil
}

// callFours makes the launch, or says why other kernels are to.
func (a *attention) callFours() (why string, err error) {
	extent := a.extent()
	s, keys := fours(extent)
	switch {
	case a.gpu.Driver().Info().Arch != hopperArch:
		return whyNotHopper, nil
	case len(a.more) > 0:
		return whyBeside, nil
	case extent != 64 && extent != 128:
		return whyFoursExtent, nil
	case a.s == 0:
		return whyNoKeys, nil
	}
	var maps [3]*cuda.TensorMap
	for k, rows := range [3]int{s.tall, keys, keys} {
		if maps[k], err = a.tiles(k, rows); err != nil {
			return whyNoMaps, err
		}
	}
	f, err := a.optional(fmt.Sprint("attention_h", extent), fmt.Sprint("attention_h_", extent), s.bytes)
	if err != nil {
		return whyFailedModule, err
	}
	blocks := min(s.blocks(a.b, a.h, a.t, a.d), max(1, a.gpu.Driver().Info().Processor)) // each does several pieces
	l := attending{a.call(f, blocks, s.threads).dynamic(s.bytes), s}
	for k, m := range maps {
		at := a.in[k].at
		at.tiles = m
		l.arg(at)
	}
	l.rows(a.result(0, a.t, a.h)).out(1)
	a.extents(l, 0)
	l.u32(a.b * a.h)
	return "", nil
}

var errStrides = errors.New("heads, or batches, that lie at one place, or backwards")

// tiles describes operand k to copies of so many rows of 64 elements.
func (a *attention) tiles(k, rows int) (*cuda.TensorMap, error) {
	x, n, heads := a.in[k], a.s, a.n
	if k == 0 {
		n, heads = a.t, a.h
	}
	// Heads come before rows: so strides grow, as the driver's documentation has them.
	m := &cuda.TensorMap{Extents: [4]uint64{uint64(a.d), uint64(heads), uint64(n), uint64(a.b)}, Box: [4]uint32{64, 1, uint32(rows), 1}}
	past := a.d // of what one more in the dimension before would begin with
	for i, stride := range [3]int{x.head, x.row, x.batch} {
		if m.Extents[i+1] == 1 { // any will do
			stride = past
		}
		if stride <= 0 {
			return nil, errStrides
		}
		m.Strides[i], past = uint64(stride*device.BFloat16.Size()), stride*int(m.Extents[i+1])
	}
	probe := *m
	probe.At = 1 << 20
	_, err := a.encode(probe)
	return m, err
}
