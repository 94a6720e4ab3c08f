package main

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOneProcessLearnsTheDigits(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	before := os.Stdout
	os.Stdout = w
	err = run(t.Context())
	os.Stdout = before
	require.NoError(t, err)
	require.NoError(t, w.Close())
	said, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Regexp(t, `^9\d\.\d\d% of the test digits are right`, string(said))
}
