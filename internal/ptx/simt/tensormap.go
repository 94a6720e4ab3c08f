package simt

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A map describes an array of bfloat16 to copies of tiles. NVIDIA's drivers do not say what the 128
// bytes have. These are our own: sixteen words, of which the first tells that, then the address,
// the extents, the strides in bytes of all dimensions but the first, whose elements follow each
// other, and the extents of a tile.
const (
	mapDims      = 4
	mapBytes     = 128
	mapMagic     = 0x31_70_61_6d_74_66_65_77 // weftmap1
	elementBytes = 2
)

type tensorMap struct {
	base    uint64
	dims    [mapDims]uint64
	strides [mapDims]uint64 // the first is an element's
	box     [mapDims]uint32
}

var errNoMap = errors.New("the bytes are no map that the driver encoded")

// EncodeMap encodes a map; its strides are those of all dimensions but the first. It refuses what
// NVIDIA's driver does.
func EncodeMap(base uint64, dims [mapDims]uint64, strides [mapDims - 1]uint64, box [mapDims]uint32) (raw [mapBytes]byte, err error) {
	var errs []error
	if base == 0 || base%16 != 0 {
		errs = append(errs, fmt.Errorf("address %#x is no multiple of 16", base))
	}
	put := func(k int, v uint64) { binary.LittleEndian.PutUint64(raw[8*k:], v) }
	put(0, mapMagic)
	put(1, base)
	for k := range mapDims {
		if dims[k] == 0 || dims[k] > 1<<32 || box[k] == 0 || box[k] > 256 {
			errs = append(errs, fmt.Errorf("extent %d of %d, in tiles of %d", k, dims[k], box[k]))
		}
		put(2+k, dims[k])
		put(9+k, uint64(box[k]))
	}
	for k, s := range strides {
		if s%16 != 0 || s >= 1<<40 {
			errs = append(errs, fmt.Errorf("stride %d of %d bytes is no multiple of 16 below 2^40", k+1, s))
		}
		put(6+k, s)
	}
	if n := box[0] * elementBytes; n%16 != 0 || n > 128 {
		errs = append(errs, fmt.Errorf("rows of %d bytes, which are no multiple of 16 up to 128", n))
	}
	return raw, errors.Join(errs...)
}

func decodeMap(raw []byte) (*tensorMap, error) {
	word := func(k int) uint64 { return binary.LittleEndian.Uint64(raw[8*k:]) }
	if word(0) != mapMagic {
		return nil, errNoMap
	}
	t := &tensorMap{base: word(1)}
	t.strides[0] = elementBytes
	for k := range mapDims {
		t.dims[k], t.box[k] = word(2+k), uint32(word(9+k))
		if k > 0 {
			t.strides[k] = word(5 + k)
		}
	}
	return t, nil
}

// size is how many bytes a tile has.
func (t *tensorMap) size() int {
	n := elementBytes
	for _, e := range t.box {
		n *= int(e)
	}
	return n
}

// reach is how many bytes the array goes from its first.
func (t *tensorMap) reach() uint64 {
	n := uint64(elementBytes)
	for k, e := range t.dims {
		n += (e - 1) * t.strides[k]
	}
	return n
}

// line is where a row of the array begins; not ok for one that there is not.
func (t *tensorMap) line(at ...int64) (q uint64, ok bool) {
	q = t.base
	for k, n := range at {
		if n < 0 || uint64(n) >= t.dims[k+1] {
			return 0, false
		}
		q += uint64(n) * t.strides[k+1]
	}
	return q, true
}
