// Package collective measures the operations of groups, and training with them, between processes
// of one machine:
//
//	go test -run '^$' -bench 'AllReduce/p=2/lane=local' ./bench/collective
//
// The process that tests is rank 0 and hosts the store; it starts itself again for each other rank.
// Bytes are those of one member's whole array, as nccl-tests count them.
package collective
