// Package wire is what workers say to each other: the kinds of messages, their headers, and the
// modes of CBOR in which most of them travel.
//
// The numbers and the order of fields are the wire format. The headers of calls, fetches and
// answers are written by hand, for speed. What another worker sends is bounded before there is
// memory for it, and what does not fit is an error that matches [ErrProtocol]; unknown keys of a
// header in CBOR are ignored, so that headers can grow.
package wire
