package tensors

import (
	"context"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device"
)

// arrays are the operations on slices of one element type, as bytes.
type arrays interface {
	allReduce(c context.Context, g *collective.Group, mem []byte, op collective.Op) error
	reduce(c context.Context, g *collective.Group, mem []byte, op collective.Op, root int) error
	broadcast(c context.Context, g *collective.Group, mem []byte, root int) error
	allGather(c context.Context, g *collective.Group, mem []byte) ([][]byte, error)
	gather(c context.Context, g *collective.Group, mem []byte, root int) ([][]byte, error)
	allToAll(c context.Context, g *collective.Group, parts [][]byte) ([][]byte, error)
}

// arraysOf are those of a dtype, which is valid.
func arraysOf(d device.Dtype) arrays {
	switch d {
	case device.Float64:
		return of[float64]{}
	case device.Int32:
		return of[int32]{}
	case device.Int64:
		return of[int64]{}
	}
	return of[float32]{}
}

type of[E collective.Element] struct{}

func (of[E]) allReduce(c context.Context, g *collective.Group, mem []byte, op collective.Op) error {
	return collective.AllReduce(c, g, device.As[E](mem), op)
}

func (of[E]) reduce(c context.Context, g *collective.Group, mem []byte, op collective.Op, root int) error {
	return collective.Reduce(c, g, device.As[E](mem), op, root)
}

func (of[E]) broadcast(c context.Context, g *collective.Group, mem []byte, root int) error {
	return collective.Broadcast(c, g, device.As[E](mem), root)
}

func (of[E]) allGather(c context.Context, g *collective.Group, mem []byte) ([][]byte, error) {
	return raw(collective.AllGather(c, g, device.As[E](mem)))
}

func (of[E]) gather(c context.Context, g *collective.Group, mem []byte, root int) ([][]byte, error) {
	return raw(collective.Gather(c, g, device.As[E](mem), root))
}

func (of[E]) allToAll(c context.Context, g *collective.Group, parts [][]byte) ([][]byte, error) {
	all := make([][]E, len(parts))
	for r, p := range parts {
		all[r] = device.As[E](p)
	}
	return raw(collective.AllToAll(c, g, all))
}

func raw[E collective.Element](all [][]E, err error) ([][]byte, error) {
	mems := make([][]byte, len(all))
	for r, x := range all {
		mems[r] = device.Bytes(x)
	}
	return mems, err
}
