// Package client is the store's client: operations over a few connections to a server of Weft's or
// of PyTorch's.
//
// An operation is a call (call.go), which takes a link from the pool (client.go), or dials and
// greets one (dial.go). A link is one connection, used by one call at a time (link.go). What
// becomes of a call whose connection is lost, the pure retry says (retry.go). What a server of
// PyTorch's lacks is put together of what it has (torch.go). All watches of a client share one link
// (watch.go, watched.go).
package client
