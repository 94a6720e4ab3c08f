// Package leak fails tests that leave goroutines or host buffers behind.
package leak
