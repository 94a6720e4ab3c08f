// Package stride is how tensors lie in memory: steps between elements, in elements. It is pure:
// nothing is kept, and slices that are given stay the caller's. Extents and strides of one tensor
// have one length; that is the caller's to see to.
package stride
