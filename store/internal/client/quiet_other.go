//go:build !unix

package client

import "net"

// quiet cannot know whether the server has hung up.
func quiet(net.Conn) bool { return true }
