package autodiff

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheDocumentationExampleHasTheRightGradients(t *testing.T) {
	t1, t2 := New([]float64{1, 2, 3}).RequireGrad(), New([]float64{4, 5, 6}).RequireGrad()
	t4 := New([]float64{7, 8, 9}).RequireGrad()
	loss := Sum(Mul(Add(t1, t2), t4))
	require.NoError(t, loss.Err())
	v, err := loss.Item()
	require.NoError(t, err)
	require.Equal(t, 5*7+7*8+9*9.0, v)
	g, err := Backward(loss)
	require.NoError(t, err)
	require.Equal(t, 3, g.Len())
	d, err := Values[float64](g.Of(t1))
	require.NoError(t, err)
	require.Equal(t, []float64{7, 8, 9}, d)
	d, err = Values[float64](g.Of(t4))
	require.NoError(t, err)
	require.Equal(t, []float64{5, 7, 9}, d)
	_, err = Backward(loss)
	require.ErrorIs(t, err, ErrGraphFreed)
	bad := Add(t1, New([]float64{1, 2}))
	require.ErrorContains(t, bad.Err(), "backward_test.go:")
}
