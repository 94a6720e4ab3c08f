// Package payload puts tensors and gradients into messages, and makes tensors of those that
// arrive. A message holds a reference to each buffer until it is released; what arrives belongs to
// the pass of the message. Sparse gradients travel as their indices and values.
package payload
