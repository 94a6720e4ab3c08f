//go:build !linux

package bulk

// yieldProcessor does nothing where how to is not known.
func yieldProcessor() {}
