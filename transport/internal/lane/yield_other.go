//go:build !linux

package lane

// yieldProcessor does nothing where how to is not known.
func yieldProcessor() {}
