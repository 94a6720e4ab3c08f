// Package grpc measures gRPC-Go on the calls and tensors that Weft's benchmarks make, under the
// same names with a lane of their own: grpc-tcp, grpc-unix, grpc-tls. It is a module of its own, so
// that Weft does not depend on gRPC.
//
// Calls are unary, and bytes go over as they are: no protocol buffers. Windows and buffers are
// larger than gRPC's defaults, which serves it better on tensors. The server is this test binary
// again, in a second process.
package grpc
