package nn

import (
	"fmt"
	"reflect"

	"github.com/weft-project/weft/autodiff"
	"github.com/weft-project/weft/device"
)

// To moves a layer to a device: the tensors that [State] names are replaced by copies there, which want gradients where those did. A tensor that lies
// in several places stays one. It comes before the optimizer, which steps the tensors that it was given. Where a copy fails, or a tensor lies in
// a struct that is no pointer, nothing is replaced.
func To(l Layer, dev device.Device) error {
	var err error
	var set []func()
	copies := map[*autodiff.Tensor]*autodiff.Tensor{}
	w := walk{moded: func(Moded) {}, tensor: func(path string, at reflect.Value) bool {
		t := tensorAt(at)
		if copies[t] == nil {
			copies[t] = autodiff.To(t.Detach(), dev)
			if t.RequiresGrad() {
				copies[t].RequireGrad()
			}
		}
		if err = copies[t].Err(); err == nil && !at.CanSet() {
			err = fmt.Errorf("nn.To: %s lies in a struct that is no pointer", path)
		}
		set = append(set, func() { at.Set(reflect.ValueOf(copies[t])) })
		return err == nil
	}}
	w.visit("", reflect.ValueOf(l))
	if err != nil {
		return err
	}
	for _, s := range set {
		s()
	}
	return nil
}

func tensorAt(v reflect.Value) *autodiff.Tensor { return v.Interface().(*autodiff.Tensor) }
