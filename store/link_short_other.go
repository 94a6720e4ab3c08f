//go:build !linux

package store

import "net"

func waitShortly(net.Conn) {}
