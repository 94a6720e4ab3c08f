//go:build !unix

package store

import (
	"net"
	"syscall"
)

// rawConn is nil: all writes wait.
func rawConn(net.Conn) syscall.RawConn { return nil }

func writeNow(syscall.RawConn, []byte) (int, error) { return 0, nil }
