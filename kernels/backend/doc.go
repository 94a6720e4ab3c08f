// Package backend finds what computes on a device.
//
// [For] gives the [kernels.Backend] of a device, and [Ways] says how that has worked so far. Both
// are safe for concurrent use. It knows the CPU's backend; accelerators bring their own with their
// memory ([kernels.Computer]), so a program that uses no GPU links none of the GPU's code.
package backend
