// Package meet connects two processes of one host, for lanes that need it: shm and cudaipc. By
// [BootID] two ends learn whether they are on one.
//
// A [Server] listens at an abstract unix socket. It lets in processes of its own user, and root's.
// Both ends of a connection prove that they know the secret of the link to which it belongs. The
// package is empty but on Linux.
package meet
