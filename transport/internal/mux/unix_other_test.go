//go:build !unix

package mux

import "github.com/weft-project/weft/transport/internal/lane"

// unixPair gives none: tests here use none.
func unixPair() (a, b lane.Conduit) { panic("no raw unix sockets are to be had on this system") }
