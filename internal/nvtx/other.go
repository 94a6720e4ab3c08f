//go:build !linux || !(amd64 || arm64)

package nvtx

type tool struct{}

func open() *tool { return nil }

func (*tool) begun(string) uintptr { return 0 }
func (*tool) ended(uintptr)        {}
