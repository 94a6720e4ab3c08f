package device

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the kind of a device.
type Kind uint8

// The kinds of devices. The zero value is the host's processor.
const (
	KindCPU  Kind = iota // the host's own memory
	KindCUDA             // an NVIDIA GPU
	KindSim              // a simulated accelerator with separate memory, for tests
)

func (k Kind) String() string {
	switch k {
	case KindCPU:
		return "cpu"
	case KindCUDA:
		return "cuda"
	case KindSim:
		return "sim"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ID names a device of one worker: "cpu", "cuda:0", "sim:1". The zero value is the CPU.
type ID struct {
	Kind  Kind
	Index int // always 0 for the CPU
}

// CUDA is the ID of the i-th CUDA device.
func CUDA(i int) ID { return ID{KindCUDA, i} }

// Sim is the ID of the i-th simulated device.
func Sim(i int) ID { return ID{KindSim, i} }

// String is the inverse of [Parse].
func (id ID) String() string {
	if id.Kind == KindCPU {
		return id.Kind.String()
	}
	return id.Kind.String() + ":" + strconv.Itoa(id.Index)
}

// compare orders IDs by kind, then by index.
func (id ID) compare(other ID) int {
	if id.Kind != other.Kind {
		return int(id.Kind) - int(other.Kind)
	}
	return id.Index - other.Index
}

// maxIndex bounds device indices, so that an ID from the network stays printable and small.
const maxIndex = 1 << 16

// Parse reads "cpu", "cuda:N" or "sim:N". A missing index means 0, as in PyTorch.
func Parse(s string) (ID, error) {
	name, index, indexed := strings.Cut(s, ":")
	id := ID{}
	switch name {
	case "cpu":
		if indexed && index != "0" {
			return ID{}, fmt.Errorf("%w: %q: there is one cpu and it has no index", ErrBadID, s)
		}
		return id, nil
	case "cuda":
		id.Kind = KindCUDA
	case "sim":
		id.Kind = KindSim
	default:
		return ID{}, fmt.Errorf("%w: %q: expected cpu, cuda:N or sim:N", ErrBadID, s)
	}
	if !indexed {
		return id, nil
	}
	n, err := strconv.ParseUint(index, 10, 16)
	if err != nil || n >= maxIndex {
		return ID{}, fmt.Errorf("%w: %q: the index must be a number from 0 to %d", ErrBadID, s, maxIndex-1)
	}
	id.Index = int(n)
	return id, nil
}

// MarshalText writes the form that [Parse] reads.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads the form that [ID.String] prints.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = Parse(string(b))
	return err
}
