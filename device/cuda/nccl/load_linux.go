//go:build linux && (amd64 || arm64)

package nccl

import "github.com/ebitengine/purego"

func load(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// symbol is a function's address; 0 where there is none.
func symbol(lib uintptr, name string) uintptr {
	at, err := purego.Dlsym(lib, name)
	if err != nil {
		return 0
	}
	return at
}

// result calls a function whose result is one of NCCL's.
//
//go:uintptrescapes
func result(at uintptr, args ...uintptr) int {
	r, _, _ := purego.SyscallN(at, args...)
	return int(int32(r))
}

// texts and lastTexts are functions that give texts.
func texts(at uintptr) (f func(int32) string) {
	purego.RegisterFunc(&f, at)
	return f
}

func lastTexts(at uintptr) (f func(uintptr) string) {
	purego.RegisterFunc(&f, at)
	return f
}
