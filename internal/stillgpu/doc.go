// Package stillgpu is a GPU for tests that does nothing, at once: its memory is addresses alone,
// what is downloaded is zeros, and whatever it loads is kernels. It remembers what it loaded. So
// tests see what a program asks of a GPU at the sizes that it really has, for which the interpreter
// would take hours.
package stillgpu
