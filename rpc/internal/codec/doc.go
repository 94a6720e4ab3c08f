// Package codec turns Go values into CBOR with a list of tensors and a list of references, and
// back.
//
// [Types] makes the [Codec] of a Go type, or says what in the type cannot travel or would be lost
// on the way: no field is left out without a word. Types without tensors and references go to the
// CBOR library whole; around the others a Codec walks structs, pointers, slices, arrays and maps.
// A tensor or reference travels once, however often a value holds it.
//
// What arrives may be forged. Memory grows with what is decoded, not with what is claimed, and
// errors match [ErrArguments] or wire.ErrProtocol.
package codec
