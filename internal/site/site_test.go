package site

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNearestCallOutsideIsFoundAndTestsAreOutside(t *testing.T) {
	var stack [32]uintptr
	var of []uintptr
	var once sync.Once
	_, file, line, _ := runtime.Caller(0)
	once.Do(func() { of = stack[:runtime.Callers(1, stack[:])] })
	gotFile, gotLine := Outside(of)
	require.Equal(t, file, gotFile)
	require.Equal(t, line+1, gotLine)
	gotFile, _ = Outside(of[:0])
	require.Empty(t, gotFile)
}

func TestRoomsAreInsideAndWhatIsOnlyCalledLikeThemIsNot(t *testing.T) {
	for name, want := range map[string]bool{
		module + "autodiff.Add": true, module + "autodiff/nn.(*Linear).Forward": true, module + "kernels/gpu.(*sequence).run": true,
		module + "examples/digits.main": false, module + "rpcx.F": false, "example.com/optim.Step": false, "main.main": false,
		"runtime.goexit": true, "sync.(*Once).doSlow": true, "runtimes.F": false,
	} {
		require.Equal(t, want, inside(name, "a.go"), name)
	}
	require.False(t, inside(module+"optim.TestX", "optim/x_test.go"))
}
