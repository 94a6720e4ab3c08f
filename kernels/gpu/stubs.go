package gpu

import "github.com/weft-project/weft/kernels"

// image is the PTX of a module of package cu.
func image(module string) ([]byte, error) { return nil, kernels.ErrNoBackend }

func (b *backend) lowerMap(i kernels.Instr, in []kernels.Type, views []*kernels.View, out []kernels.Type) (*code, error) {
	return nil, unknown(i)
}

func (b *backend) lowerMove(i kernels.Instr, in []kernels.Type, views []*kernels.View, out []kernels.Type) (*code, error) {
	return nil, unknown(i)
}
