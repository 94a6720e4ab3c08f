package rows

import (
	"fmt"
	"slices"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
	"github.com/weft-project/weft/kernels/backend"
)

// Rows are the parts of a sparse tensor's value, with one reference each.
type Rows struct {
	IDs, Values *device.Buffer // int64 [N]; [N, d…]
	N           int
	Distinct    bool // no id occurs twice, and they ascend
}

// New checks the parts of a value of extent rows: the ids must lie in [0, extent). It takes over
// both references, and gives the type of the whole value.
func New(extent int, idsAre kernels.Type, ids *device.Buffer, valuesAre kernels.Type, values *device.Buffer) (*Rows, kernels.Type, error) {
	r := &Rows{IDs: ids, Values: values}
	typ, err := r.check(extent, idsAre, valuesAre)
	if err != nil {
		r.Release()
	}
	return r, typ, err
}

func (r *Rows) check(extent int, idsAre, valuesAre kernels.Type) (typ kernels.Type, err error) {
	if len(idsAre.Shape) != 1 || idsAre.Dtype != device.Int64 || !valuesAre.Dtype.IsFloat() || len(valuesAre.Shape) == 0 || valuesAre.Shape[0] != idsAre.Shape[0] {
		return typ, fmt.Errorf("indices %v and values %v are no rows; expected int64(n) and floats (n, …)", idsAre, valuesAre)
	}
	typ = kernels.Type{Dtype: valuesAre.Dtype, Shape: slices.Concat(device.Shape{extent}, valuesAre.Shape[1:])}
	switch err := typ.Shape.Check(); {
	case err != nil:
		return typ, err
	case r.IDs.Len() != idsAre.Bytes() || r.Values.Len() != valuesAre.Bytes() || r.IDs.Device() != r.Values.Device():
		return typ, fmt.Errorf("the buffers do not hold %v and %v, on one device", idsAre, valuesAre)
	}
	r.N = idsAre.Shape[0]
	at, err := r.indices()
	if err != nil {
		return typ, err
	}
	r.Distinct = true
	for k, id := range at {
		if id < 0 || id >= int64(extent) {
			return typ, &kernels.IndexError{Instr: "Sparse", ID: id, At: k, N: extent}
		}
		r.Distinct = r.Distinct && (k == 0 || at[k-1] < id)
	}
	return typ, nil
}

// Retain takes another reference to each part.
func (r *Rows) Retain() *Rows {
	r.IDs.Retain()
	r.Values.Retain()
	return r
}

// Release gives the references back.
func (r *Rows) Release() {
	for _, b := range [2]*device.Buffer{r.IDs, r.Values} {
		if b != nil {
			_ = b.Release() // ours
		}
	}
}

// Bytes is how many bytes the parts take.
func (r *Rows) Bytes() int { return r.IDs.Len() + r.Values.Len() }

// ValuesType is the type of the values of n rows of a dense type.
func ValuesType(dense kernels.Type, n int) kernels.Type {
	return kernels.Type{Dtype: dense.Dtype, Shape: slices.Concat(device.Shape{n}, dense.Shape[1:])}
}

// IDsType is the type of the ids of n rows.
func IDsType(n int) kernels.Type { return kernels.Type{Dtype: device.Int64, Shape: device.Shape{n}} }

// indices copies the ids to the host.
func (r *Rows) indices() ([]int64, error) {
	at := make([]int64, r.N)
	return at, r.IDs.Device().Download(device.Bytes(at), r.IDs, 0)
}

// Join is all rows of both, coalesced where they are more than the tensor has: sums stay bounded
// however many are added.
func (r *Rows) Join(s *Rows, dense kernels.Type) (*Rows, error) {
	n := r.N + s.N
	ids, err := backend.Run(r.IDs.Device(), kernels.Concat{}, []kernels.Type{IDsType(r.N), IDsType(s.N)}, r.IDs, s.IDs)
	if err != nil {
		return nil, err
	}
	values, err := backend.Run(r.IDs.Device(), kernels.Concat{}, []kernels.Type{ValuesType(dense, r.N), ValuesType(dense, s.N)}, r.Values, s.Values)
	if err != nil {
		_ = ids.Release() // ours alone
		return nil, err
	}
	sum := &Rows{IDs: ids, Values: values, N: n}
	if n <= dense.Shape[0] {
		return sum, nil
	}
	defer sum.Release()
	return sum.Coalesced(dense)
}

// Coalesced has every id once, in ascending order, with the sum of its values.
func (r *Rows) Coalesced(dense kernels.Type) (*Rows, error) {
	at, err := r.indices()
	if err != nil {
		return nil, err
	}
	distinct := slices.Clone(at)
	slices.Sort(distinct)
	distinct = slices.Compact(distinct)
	for k, id := range at {
		n, _ := slices.BinarySearch(distinct, id)
		at[k] = int64(n)
	}
	dev := r.IDs.Device()
	to, err := upload(dev, at)
	if err != nil {
		return nil, err
	}
	defer to.Release() //nolint:errcheck // ours
	values, err := backend.Run(dev, kernels.ScatterAdd{Rows: len(distinct)}, []kernels.Type{IDsType(r.N), ValuesType(dense, r.N)}, to, r.Values)
	if err != nil {
		return nil, err
	}
	ids, err := upload(dev, distinct)
	if err != nil {
		_ = values.Release() // ours alone
		return nil, err
	}
	return &Rows{IDs: ids, Values: values, N: len(distinct), Distinct: true}, nil
}

func upload(dev device.Device, v []int64) (*device.Buffer, error) {
	b, err := dev.Alloc(8 * len(v))
	if err != nil {
		return nil, err
	}
	if err := dev.Upload(b, 0, device.Bytes(v)); err != nil {
		_ = b.Release() // ours alone
		return nil, err
	}
	return b, nil
}

// Dense is the whole value of that type, on the device of the rows.
func (r *Rows) Dense(typ kernels.Type) (*device.Buffer, error) {
	return backend.Run(r.IDs.Device(), kernels.ScatterAdd{Rows: typ.Shape[0]}, []kernels.Type{IDsType(r.N), ValuesType(typ, r.N)}, r.IDs, r.Values)
}

// Adding is how the rows are added to a whole value of that type: (whole, values, ids).
func (r *Rows) Adding(whole kernels.Type) (kernels.Instr, []kernels.Type) {
	return kernels.OnRows{Of: kernels.Binary{Fn: kernels.Add}}, []kernels.Type{whole, ValuesType(whole, r.N), IDsType(r.N)}
}
