package cuda

// Lender is a [Driver] on whose GPU other libraries of CUDA can work, as NCCL does. Its streams are
// [Handled].
type Lender interface {
	Info() Info
	// Within makes a call on a thread whose current context is the GPU's. What it fails with is
	// given as it is. The driver is not closed before it returns.
	Within(call func() error) error
}

// Handled is a [Stream] that those libraries can submit to.
type Handled interface {
	// Handle is the driver's, and valid until the stream is closed.
	Handle() uintptr
}
