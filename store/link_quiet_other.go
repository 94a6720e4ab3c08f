//go:build !unix

package store

import "net"

// quiet cannot know whether the server has hung up.
func quiet(net.Conn) bool { return true }
