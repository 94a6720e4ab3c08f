// Package wire is the protocol of PyTorch's TCPStore, in all its dialects, and Weft's own mode of
// it: commands and replies into bytes, and back.
//
// A [Protocol] says how the two ends of a connection speak (dialect.go has the opcodes). It writes
// commands and replies into an [Encoder]; a [Decoder] reads them. A Decoder believes no length: it
// takes memory as bytes arrive, and what exceeds the limits is an error before it is read.
//
// There is no framing: an opcode and its arguments are answered by the bare result. A string is a
// u64 length and its bytes, a count is u64, a number is i64, all little-endian.
package wire
