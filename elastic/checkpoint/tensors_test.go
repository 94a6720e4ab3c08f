package checkpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// vector is bytes that call themselves a tensor.
type vector struct {
	data []byte
	err  error
}

func (v vector) Raw() (string, []int, []byte, error) { return "U8", []int{len(v.data)}, v.data, v.err }

func fromRaw(dtype string, shape []int, data []byte) vector {
	if dtype != "U8" || len(shape) != 1 || shape[0] != len(data) {
		return vector{err: ErrInvalid}
	}
	return vector{data: data}
}

func TestTensorsComeBackUnderTheirNames(t *testing.T) {
	d, err := Open(t.TempDir(), Config{})
	require.NoError(t, err)
	model := map[string]vector{"0.W": {data: []byte{1, 2}}, "0.B": {data: []byte{3}}}
	optim := map[string]vector{"0.W.exp_avg": {data: []byte{4, 5}}}
	one, err := Pieces("model.", model)
	require.NoError(t, err)
	two, err := Pieces("optim.", optim)
	require.NoError(t, err)
	require.NoError(t, d.Save(t.Context(), Part{Pieces: append(one, two...)}))
	k, err := d.Latest()
	require.NoError(t, err)
	defer k.Close() //nolint:errcheck // it was only read
	require.Equal(t, []string{"model.0.B", "model.0.W", "optim.0.W.exp_avg"}, k.Names())
	for prefix, want := range map[string]map[string]vector{"model.": model, "optim.": optim, "none.": {}} {
		got, err := Tensors(k, prefix, fromRaw)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestATensorThatCannotBeReadIsNamed(t *testing.T) {
	broken := errors.New("it was freed")
	_, err := Pieces("model.", map[string]vector{"a": {}, "b": {err: broken}, "c": {err: broken}})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, `"model.b"`)
	require.ErrorContains(t, err, `"model.c"`)
}
