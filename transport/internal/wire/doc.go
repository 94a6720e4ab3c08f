// Package wire holds what travels on a link, and how: messages, tensors, their frames, errors and
// limits. It is the lowest package of transport, and imports no other one of it. Package transport
// gives its types to users.
//
// A [Codec] writes a [Message] as a frame and reads it back. What a peer sends is checked against
// [Limits] before memory is set aside for it; a frame that breaks the rules gives a [FrameError].
//
// [Network], [Link] and [Stream] say what links do. Package link makes them, and package simnet
// does in memory.
package wire
