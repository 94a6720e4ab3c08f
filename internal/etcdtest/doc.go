// Package etcdtest runs clusters of etcd for tests: real processes, on addresses of the loopback,
// that tests may kill and start again.
//
// Where there is no etcd a test that wants one is skipped, or fails if the environment has
// WEFT_NEED_ETCD. A Cluster is its caller's to stop; it also ends with this process. Members may be
// used by one goroutine at a time.
package etcdtest
