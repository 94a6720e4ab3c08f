package gorgonia

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// FromValue copies a value of Gorgonia's, a scalar or a dense tensor, also one that is a
// view. An int becomes an int64.
func FromValue(v gorgonia.Value) (t *autodiff.Tensor) {
	defer func() {
		if r := recover(); r != nil { // of a value that is not what it says
			t = autodiff.Failed(failure("gorgonia.FromValue", fmt.Errorf("%w: panic while reading a %T: %v", ErrImport, v, r)))
		}
	}()
	if v == nil {
		return autodiff.Failed(failure("gorgonia.FromValue", fmt.Errorf("%w: the value is nil", ErrImport)))
	}
	d, err := dtypeOf(v.Dtype())
	if err != nil {
		return autodiff.Failed(failure("gorgonia.FromValue", err))
	}
	typ := kernels.Type{Dtype: d, Shape: append(device.Shape{}, v.Shape()...)}
	if x, ok := v.(*tensor.Dense); ok && (x.IsMaterializable() || !x.DataOrder().IsRowMajor()) {
		if v, err = rowMajorCopy(x); err != nil {
			return autodiff.Failed(failure("gorgonia.FromValue", fmt.Errorf("%w: a %T of %v: %w", ErrImport, x, typ, err)))
		}
	}
	raw, err := rawOf(v.Data())
	if err != nil || len(raw) != typ.Bytes() {
		return autodiff.Failed(failure("gorgonia.FromValue", fmt.Errorf("%w: a %T of %d bytes where %v needs %d", ErrImport, v, len(raw), typ, typ.Bytes())))
	}
	return fromRaw(typ, raw)
}

// fromRaw is nobody's tensor with that value.
func fromRaw(t kernels.Type, raw []byte) *autodiff.Tensor {
	names := [...]string{device.Float32: "F32", device.Float64: "F64", device.Int32: "I32", device.Int64: "I64"}
	return autodiff.FromRaw(names[t.Dtype], t.Shape, raw)
}

// inShape is the same value in another shape. It computes nothing, which must not be done while a
// graph is read.
func inShape(x *autodiff.Tensor, shape device.Shape) (*autodiff.Tensor, error) {
	if x.Type().Shape.Equal(shape) {
		return x, nil
	}
	_, _, raw, err := x.Raw()
	if err != nil {
		return nil, err
	}
	y := fromRaw(kernels.Type{Dtype: x.Dtype(), Shape: shape}, raw)
	return y, y.Err()
}

// rowMajorCopy lays a view, or columns, out in rows.
func rowMajorCopy(x *tensor.Dense) (*tensor.Dense, error) {
	out := tensor.New(tensor.Of(x.Dtype()), tensor.WithShape(x.Shape()...))
	at := make([]int, x.Dims())
	for i := range x.Shape().TotalSize() {
		for k, rest := len(at)-1, i; k >= 0; k-- {
			at[k], rest = rest%x.Shape()[k], rest/x.Shape()[k]
		}
		v, err := x.At(at...)
		if err != nil {
			return nil, err
		}
		out.Set(i, v)
	}
	return out, nil
}

// rawOf is the elements of a value as bytes.
func rawOf(data any) ([]byte, error) {
	switch x := data.(type) {
	case []float32:
		return device.Bytes(x), nil
	case []float64:
		return device.Bytes(x), nil
	case []int32:
		return device.Bytes(x), nil
	case []int64:
		return device.Bytes(x), nil
	case []int:
		wide := make([]int64, len(x))
		for i, v := range x {
			wide[i] = int64(v)
		}
		return device.Bytes(wide), nil
	case float32:
		return device.Bytes([]float32{x}), nil
	case float64:
		return device.Bytes([]float64{x}), nil
	case int32:
		return device.Bytes([]int32{x}), nil
	case int64:
		return device.Bytes([]int64{x}), nil
	case int:
		return device.Bytes([]int64{int64(x)}), nil
	}
	return nil, fmt.Errorf("%w: %T", autodiff.ErrDtype, data)
}

// dtypeOf is Gorgonia's dtype in Weft's words.
func dtypeOf(d tensor.Dtype) (device.Dtype, error) {
	switch d {
	case tensor.Float32:
		return device.Float32, nil
	case tensor.Float64:
		return device.Float64, nil
	case tensor.Int32:
		return device.Int32, nil
	case tensor.Int64, tensor.Int:
		return device.Int64, nil
	case tensor.Bool:
		return 0, fmt.Errorf("%w: it is boolean; build comparisons with retSame, which gives 1 and 0", autodiff.ErrDtype)
	}
	return 0, fmt.Errorf("%w: it is %v; float32, float64, int, int32 and int64 can be imported", autodiff.ErrDtype, d)
}

// ToValue copies a tensor to a new value of Gorgonia's: a scalar where the tensor has no
// axes, a dense tensor otherwise.
func ToValue(t *autodiff.Tensor) (gorgonia.Value, error) {
	if err := t.Err(); err != nil {
		return nil, failure("gorgonia.ToValue", err)
	}
	home := autodiff.To(t.Detach(), device.Host())
	b, err := home.Acquire()
	if err != nil {
		return nil, failure("gorgonia.ToValue", err)
	}
	defer b.Release() //nolint:errcheck // ours
	return expr.ValueOf(b, t.Type())
}

// FromParams makes parameters: for each node a tensor on the CPU that requires gradients
// and has a copy of the node's value.
func FromParams(nodes ...*gorgonia.Node) ([]*autodiff.Tensor, error) {
	ts := make([]*autodiff.Tensor, len(nodes))
	for k, n := range nodes {
		if n == nil || n.Value() == nil {
			return nil, failure("gorgonia.FromParams", fmt.Errorf("%w: parameter %d, %s, has no value", ErrImport, k, nameOrNil(n)))
		}
		if ts[k] = FromValue(n.Value()).RequireGrad(); ts[k].Err() != nil {
			return nil, fmt.Errorf("parameter %d, %s: %w", k, nameOrNil(n), ts[k].Err())
		}
	}
	return ts, nil
}

// ToParams gives nodes the values of tensors, with [gorgonia.Let]: the way back after
// training. Each tensor needs the dtype and shape of its node.
func ToParams(nodes []*gorgonia.Node, tensors []*autodiff.Tensor) (err error) {
	if err := expr.Lock(); err != nil {
		return failure("gorgonia.ToParams", err)
	}
	defer expr.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: panic in gorgonia.Let: %v", ErrImport, r)
		}
		if err != nil {
			err = failure("gorgonia.ToParams", err)
		}
	}()
	if len(nodes) != len(tensors) {
		return fmt.Errorf("%w: %d nodes and %d tensors", ErrImport, len(nodes), len(tensors))
	}
	values := make([]gorgonia.Value, len(nodes))
	for k, n := range nodes { // all or none
		if n == nil {
			return fmt.Errorf("%w: node %d is nil", ErrImport, k)
		}
		want, err := typeOfNode(n)
		if err == nil && !want.Equal(tensors[k].Type()) {
			err = errors.Join(tensors[k].Err(), fmt.Errorf("%w: the tensor is %v, and the node is %v", ErrImport, tensors[k].Type(), want))
		}
		if err == nil {
			values[k], err = ToValue(tensors[k])
		}
		if err != nil {
			return fmt.Errorf("%s: %w", nodeName(n), err)
		}
	}
	for k, n := range nodes {
		if err := gorgonia.Let(n, values[k]); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrImport, nodeName(n), err)
		}
	}
	return nil
}

func nameOrNil(n *gorgonia.Node) string {
	if n == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", n.Name())
}
