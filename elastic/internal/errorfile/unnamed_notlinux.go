//go:build !linux

package errorfile

// Unnamed is no file: on this system only a log folder makes error files.
func Unnamed() File { return File{} }
