//go:build !linux

package transport_test

import "errors"

// localChild is a peer on this host, which has no lane of its own here.
func localChild() error { return errors.New("lane local is not to be had on this system") }
