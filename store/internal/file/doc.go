// Package file is the store in a file, in the format of PyTorch's FileStore: a log that all clients
// lock, append to, and read to its end.
//
// log.go has the format: records, batches, and what PyTorch takes for tombstones. handle.go opens,
// locks, reads and appends to the file. lock.go brings the state up to date under the lock, and
// applies a command to it. ops.go has the operations, file.go the store's beginning and end.
package file
