package checkpoint

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Pieces are whole tensors as a checkpoint holds them, each under its name after a prefix: for
// example Pieces("model.", maps.Collect(nn.State(model))). Raw, which *autodiff.Tensor has, gives a
// tensor's dtype in the words of safetensors, its shape, and its bytes.
func Pieces[T interface {
	Raw() (dtype string, shape []int, data []byte, err error)
}](prefix string, tensors map[string]T) ([]Piece, error) {
	var out []Piece
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		p := Piece{Name: prefix + name}
		var err error
		if p.DType, p.Shape, p.Data, err = tensors[name].Raw(); err != nil {
			errs = append(errs, fmt.Errorf("%w: tensor %q: %w", ErrInvalid, p.Name, err))
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

// Tensors reads all tensors whose names begin with a prefix, under their names without it. made,
// such as autodiff.FromRaw, makes them of what Raw gave: Tensors(k, "model.", autodiff.FromRaw).
func Tensors[T any](k *Checkpoint, prefix string, made func(dtype string, shape []int, data []byte) T) (map[string]T, error) {
	out := map[string]T{}
	for _, full := range k.Names() {
		name, ok := strings.CutPrefix(full, prefix)
		if !ok {
			continue
		}
		p, err := k.Read(full)
		if err != nil {
			return nil, err
		}
		out[name] = made(p.DType, p.Shape, p.Data)
	}
	return out, nil
}
