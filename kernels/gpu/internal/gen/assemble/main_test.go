package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/kernels/gpu/internal/gen"
)

func TestWhatTheAssemblerRefusesIsAnError(t *testing.T) {
	plain, err := sample(1, false)
	require.NoError(t, err)
	require.NotEmpty(t, plain)
	ks, err := sample(1, true)
	require.NoError(t, err)
	require.NotEmpty(t, ks)
	text, _ := gen.Module(ks)
	require.Contains(t, text, ".target sm_80")
	require.NoError(t, assemble("true", []string{"sm_75"}, ks, false))
	require.Error(t, assemble("false", []string{"sm_75"}, ks, false))
}
