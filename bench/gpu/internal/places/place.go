package places

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/ptx"
)

// Place is a GPU by the name that -device gives: cuda:N or interpreter.
type Place string

// Interpreter is the place that is no GPU, but the interpreter of PTX.
const Interpreter Place = "interpreter"

// NoLibrary is what the interpreter says of cuBLASLt.
const NoLibrary = "none: this is the interpreter"

// Set is flag.Value's. What is wrong is told by check, with all else.
func (p *Place) Set(s string) error {
	*p = Place(s)
	return nil
}

// Check says what is wrong with a place.
func (p *Place) Check() error {
	if _, err := p.ID(); err != nil {
		return fmt.Errorf("-device: %w", err)
	}
	return nil
}

func (p *Place) String() string { return string(*p) }

// ID is the device of this process that is meant.
func (p Place) ID() (device.ID, error) {
	if p == Interpreter {
		return device.CUDA(0), nil
	}
	id, err := device.Parse(string(p))
	if err != nil || id.Kind != device.KindCUDA {
		return id, fmt.Errorf("%q is no GPU; expected cuda:N, as cuda:0, or interpreter; nvidia-smi -L lists the GPUs", string(p))
	}
	return id, nil
}

// Driver opens the GPU.
func (p Place) Driver() (cuda.Driver, error) {
	if p == Interpreter {
		return ptx.New(ptx.Config{}), nil
	}
	id, err := p.ID()
	if err != nil {
		return nil, err
	}
	return native.Open(id.Index)
}

// Library says where cuBLASLt was found, and its version, or why there is none.
func (p Place) Library() string {
	if p == Interpreter {
		return NoLibrary
	}
	path, version, err := native.Library()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, version %d", path, version)
}
