package main

import (
	"fmt"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/device/cuda"
	"github.com/weft-project/weft/device/cuda/native"
	"github.com/weft-project/weft/internal/ptx"
)

// place is a GPU, by the name that -device gives: cuda:N or interpreter.
type place string

const interpreter place = "interpreter"

// noLibrary is what the interpreter says of cuBLASLt.
const noLibrary = "none: this is the interpreter"

// Set is flag.Value's. What is wrong is told by check, with all else.
func (p *place) Set(s string) error {
	*p = place(s)
	return nil
}

func (p *place) check() error {
	if _, err := p.id(); err != nil {
		return fmt.Errorf("-device: %w", err)
	}
	return nil
}

func (p *place) String() string { return string(*p) }

func (p place) id() (device.ID, error) {
	if p == interpreter {
		return device.CUDA(0), nil
	}
	id, err := device.Parse(string(p))
	if err != nil {
		return id, err
	}
	if id.Kind != device.KindCUDA {
		return id, fmt.Errorf("%q is no GPU; expected cuda:N, or interpreter", string(p))
	}
	return id, nil
}

// driver opens the GPU.
func (p place) driver() (cuda.Driver, error) {
	if p == interpreter {
		return ptx.New(ptx.Config{}), nil
	}
	id, err := p.id()
	if err != nil {
		return nil, err
	}
	return native.Open(id.Index)
}

// library says where cuBLASLt was found, and its version, or why there is none.
func (p place) library() string {
	if p == interpreter {
		return noLibrary
	}
	path, version, err := native.Library()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, version %d", path, version)
}
