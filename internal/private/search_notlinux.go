//go:build unix && !linux

package private

import "golang.org/x/sys/unix"

// search opens a folder for its names alone; here that needs the right to list it.
const search = unix.O_RDONLY
