package compile

import (
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// Home is what programs are made for: a kind of device or, where kernels are loaded into it, one
// device.
type Home struct {
	Kind    device.Kind
	Only    *device.Accelerator
	Narrows bool           // products round what they read, so that it makes a difference what is a parameter
	Pads    kernels.Padder // nil, or says of what length rows of products are faster
}

// HomeOf is the home of programs for a device.
func HomeOf(dev device.Device) Home {
	h := Home{Kind: dev.ID().Kind}
	if h.Only, _ = dev.(*device.Accelerator); h.Only == nil {
		return h
	}
	if c, ok := h.Only.Memory().(kernels.Computer); ok {
		n, ok := c.Backend().(kernels.Narrower)
		h.Narrows = ok && n.Narrows()
		if p, ok := c.Backend().(kernels.Padder); ok && p.PadsRows() {
			h.Pads = p
		}
	}
	return h
}
