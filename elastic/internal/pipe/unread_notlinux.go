//go:build !linux

package pipe

import "os"

// Counts says that Unread cannot tell here.
const Counts = false

// Unread is not to be had here.
func Unread(*os.File) int { return 0 }
