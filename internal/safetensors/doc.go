// Package safetensors reads and writes files of named tensors in the format of Hugging Face's
// library of that name: a length of 8 bytes (little-endian), a header in JSON with each tensor's
// dtype, shape and place, and the tensors' bytes.
//
// A file that is read is believed in nothing: lengths are bounded before memory is taken for them,
// names are there once, and the tensors must lie beside each other, in any order, without gaps or
// overlaps, up to the end of the file. What is wrong is an error that matches [ErrFormat]. Written
// files are the same for the same tensors, whatever their order was.
//
// Nothing here owns a file or shares memory with its caller.
package safetensors
