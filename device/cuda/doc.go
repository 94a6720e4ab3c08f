// Package cuda says what a GPU can do: [Driver], with what some of them can beside ([Multiplier],
// [Timer], [Graph] and others).
//
// Two packages implement it: native calls NVIDIA's driver (build tag gpu), and interpreter runs the
// same PTX kernels on the host's processor, so that everything above is tested where there is no
// GPU. Nothing here or above knows which it has. Package kernels/gpu makes a device of either.
//
// Drivers are safe for concurrent use.
package cuda
