package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatTheAssemblerRefusesIsAnError(t *testing.T) {
	ks, err := sample(1)
	require.NoError(t, err)
	require.NotEmpty(t, ks)
	require.NoError(t, assemble("true", []string{"sm_75"}, ks, false))
	require.Error(t, assemble("false", []string{"sm_75"}, ks, false))
}
