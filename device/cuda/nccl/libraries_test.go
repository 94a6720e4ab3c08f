//go:build cgo && linux && (amd64 || arm64)

package nccl

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var libraries = flag.String("libraries", "", "paths of NVIDIA's libnccl.so.2, separated by commas, which are to be opened without a GPU (make nccl-libraries)")

// nobody is no GPU.
type nobody struct{}

func (nobody) Within(call func() error) error { return call() }

// TestLibrariesServeWithoutAGPUUpToTheDriver opens NVIDIA's own libraries where some are named, and
// otherwise the fake, with an error of CUDA's planted.
func TestLibrariesServeWithoutAGPUUpToTheDriver(t *testing.T) {
	paths := strings.Split(*libraries, ",")
	if *libraries == "" {
		_, f := fake(t, 21803)
		f.Plant("ncclCommInitRankConfig", -1, 1)
		paths = []string{f.Path}
	}
	for _, path := range paths {
		l, err := OpenAt(path)
		require.NoError(t, err)
		for f := range functionCount {
			require.Equal(t, functions[f].since == 0 || l.Version()/100 >= functions[f].since/100, l.at[f] != 0, "%s of %s", f, Version(l.Version()))
		}
		for code := 1; code <= 7; code++ {
			require.NotEmpty(t, l.ErrorText(code))
		}
		require.NotEqual(t, l.ErrorText(1), l.ErrorText(5))
		one, err := l.NewID()
		require.NoError(t, err)
		two, err := l.NewID()
		require.NoError(t, err)
		require.NotEqual(t, one, two)
		_, err = l.Init(context.Background(), nobody{}, 1, one, 0, Config{Name: "weft", MaxCTAs: 4})
		require.ErrorIs(t, err, ErrCUDA)
		fmt.Printf("%s, version %s: %d functions, ids, and without a driver: %v\n", path, Version(l.Version()), functionCount, err)
	}
}
