package client

import "testing"

// Fake is a server that is like one of a release of PyTorch, or Weft's, and makes clients of
// itself.
func Fake(t *testing.T, release string) func() *Client {
	f := newFake(t, release)
	return func() *Client { return f.client(Config{WorldSize: 4}) }
}
