package nn

import (
	"fmt"
	"reflect"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// To moves a layer to a device: the tensors that [State] names are replaced by copies there, which
// want gradients where those did. A tensor that lies in several places stays one. It comes before
// the optimizer, which steps the tensors that it was given. Where a copy fails, a tensor lies in a
// struct that is no pointer, or no exported field leads to a parameter, nothing is replaced.
func To(l Layer, dev device.Device) error {
	if missing(l) {
		return autodiff.Failed(fmt.Errorf("nn.To: %w: the layer is nil", autodiff.ErrFunction)).Err()
	}
	var err error
	var set []func()
	copies := map[*autodiff.Tensor]*autodiff.Tensor{}
	met := map[*autodiff.Tensor]bool{}
	w := walk{tensor: func(path string, at place) bool {
		t := at.Tensor
		met[t] = true
		if copies[t] == nil {
			copies[t] = autodiff.To(t.Detach(), dev)
			if t.RequiresGrad() {
				copies[t].RequireGrad()
			}
		}
		if err = copies[t].Err(); err == nil && at.set == nil {
			err = fmt.Errorf("nn.To: %s lies in a struct that is no pointer", path)
		}
		set = append(set, func() { at.set(copies[t]) })
		return err == nil
	}}
	w.visit("", reflect.ValueOf(l), nil)
	if err == nil {
		err = hidden(l, met)
	}
	if err != nil {
		return autodiff.Failed(err).Err()
	}
	for _, s := range set {
		s()
	}
	return nil
}
