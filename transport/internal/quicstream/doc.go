// Package quicstream moves the large tensors that no other lane takes: over one-way QUIC streams.
//
// Each message has a stream of its own. Its receiver says when it fetches and how far it has read,
// and no more than a window is under way (window.go). Where it can be had, tensors have a QUIC
// connection of their own beside the link's, between the same sockets (pending.go, beside.go); so
// calls do not wait behind them.
package quicstream
