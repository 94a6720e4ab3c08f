package backend

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Run runs a single instruction that has one result, on a device, and gives the result. Who runs an
// instruction often prepares it once instead.
func Run(dev device.Device, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) (*device.Buffer, error) {
	out, err := i.Infer(types)
	if err != nil {
		return nil, err
	}
	buf, err := dev.Alloc(out[0].Bytes())
	if err != nil {
		return nil, err
	}
	if err := RunInto(buf, i, types, in...); err != nil {
		_ = buf.Release() // ours alone
		return nil, err
	}
	return buf, nil
}

// RunInto is [Run] with a buffer for the result.
func RunInto(out *device.Buffer, i kernels.Instr, types []kernels.Type, in ...*device.Buffer) error {
	b, err := For(out.Device())
	if err != nil {
		return err
	}
	k, err := b.Prepare(i, types)
	if err != nil {
		return err
	}
	return k.Run([]*device.Buffer{out}, in)
}
