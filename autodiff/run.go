package autodiff

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// runOne runs a single instruction with one result.
func runOne(dev device.Device, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) (*device.Buffer, error) {
	out, err := i.Infer(types)
	if err != nil {
		return nil, err
	}
	buf, err := dev.Alloc(out[0].Bytes())
	if err != nil {
		return nil, err
	}
	if err := runInto(buf, i, types, in...); err != nil {
		_ = buf.Release() // ours alone
		return nil, err
	}
	return buf, nil
}

// runInto is runOne with a buffer for the result.
func runInto(out *device.Buffer, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) error {
	b, err := backend.For(out.Device())
	if err != nil {
		return err
	}
	k, err := b.Prepare(i, types)
	if err != nil {
		return err
	}
	return k.Run([]*device.Buffer{out}, in)
}
