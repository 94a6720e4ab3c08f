package store

import "testing"

// Fake is a server that is like one of a release of PyTorch, or Weft's, and makes clients of
// itself.
func Fake(t *testing.T, release string) func() Store {
	f := newFake(t, release)
	return func() Store { return f.client(ClientConfig{WorldSize: 4}) }
}
