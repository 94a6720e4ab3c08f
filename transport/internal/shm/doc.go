// Package shm is the lane local: both ends on one host, tensors in shared memory.
//
// Frames travel over a unix socket. A sender lends the receiver the memory in which a tensor lies,
// or a copy of it, and takes it back when the receiver has released it; the ledger, a second
// socket, keeps the loans. The receiver cannot write what it is lent. There is no such lane but on
// Linux.
package shm
