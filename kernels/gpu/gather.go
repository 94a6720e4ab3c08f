package gpu

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

func (b *backend) gather(in []kernels.Type) (*code, error) {
	c, d, count := new(code), in[0].Dtype, in[1].Shape.Elems()
	p := planRows(d, count, in[0].Shape[1:].Elems(), 4, 256)
	f, err := b.kernel("rows", typed("gather", d), 0)
	if err != nil {
		return nil, err
	}
	p.launch(c, f).out(0).in(0).in(1).flag(in[1].Dtype == device.Int64).u32(count).u32(p.n).u32(p.lanes).u64(uint64(in[0].Shape[0])).fault()
	return c, nil
}

// sortTile is how many keys a block sorts, and runKeys how many a group of threads adds up:
// rows.cu's Tile and Run.
const (
	sortTile = 2048
	runKeys  = 32
)

// sort puts operand k, ids of rows, in order, in scratch memory: keys of 8 bytes, the id above its
// position. Ids out of range come last.
func (b *backend) sort(c *code, k int, ids kernels.Type, rows int) (keys int, err error) {
	count := ids.Shape.Elems()
	if count == 0 {
		return 0, nil
	}
	begin, err := b.kernel("rows", "sort_keys", 0)
	if err != nil {
		return 0, err
	}
	padded := max(power(count), 64)
	tile := min(padded, sortTile)
	keys = c.temp(8 * padded)
	c.call(begin, padded/tile, tile/2).temp(keys).in(k).flag(ids.Dtype == device.Int64).u32(count).u32(tile).u64(uint64(rows)).fault()
	if padded == tile {
		return keys, nil
	}
	step, err := b.kernel("rows", "sort_step", 0)
	if err != nil {
		return 0, err
	}
	rest, err := b.kernel("rows", "sort_tile", 0)
	if err != nil {
		return 0, err
	}
	for size := 2 * tile; size <= padded; size *= 2 {
		for stride := size / 2; stride >= tile; stride /= 2 {
			c.call(step, padded/2/256, 256).temp(keys).u32(padded / 2).u32(size).u32(stride)
		}
		c.call(rest, padded/tile, tile/2).temp(keys).u32(size)
	}
	return keys, nil
}

func (b *backend) scatterAdd(i kernels.ScatterAdd, in, out []kernels.Type) (*code, error) {
	c, d, count := new(code), in[1].Dtype, in[0].Shape.Elems()
	n := in[1].Shape[len(in[0].Shape):].Elems()
	zero, err := b.kernel("rows", "zero", 0)
	if err != nil {
		return nil, err
	}
	c.words(zero, out[0].Bytes()).out(0).u64(uint64(out[0].Bytes() / 4))
	keys, err := b.sort(c, 0, in[0], i.Rows)
	if err != nil || count == 0 || n == 0 {
		return c, err
	}
	runs := (count + runKeys - 1) / runKeys
	p := planRows(d, runs, n, 2, 256)
	part := c.temp(8 * 2 * runs * n)
	for _, name := range []string{"scatter", "scatter_parts"} {
		f, err := b.kernel("rows", typed(name, d), 0)
		if err != nil {
			return nil, err
		}
		l := p.launch(c, f).out(0)
		if name == "scatter" {
			l.in(1)
		}
		l.temp(part).temp(keys).u32(count).u32(n).u32(p.lanes).u64(uint64(i.Rows))
		if runs == 1 {
			break // no id reaches beyond the run
		}
	}
	return c, nil
}
