// Package bulk is the lane bulk: large tensors over several TLS connections (stripes), in blocks.
//
// Stripes carry blocks of tensors and nothing else, so that calls never wait behind them. What the
// two ends say of transfers goes with the link's frames. The receiver of a transfer first has its
// buffers ready, and then lets it go. wire.go has all formats.
package bulk
