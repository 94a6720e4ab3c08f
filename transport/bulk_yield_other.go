//go:build !linux

package transport

// yieldProcessor does nothing where how to is not known.
func yieldProcessor() {}
