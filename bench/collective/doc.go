// Package collective measures the operations of groups, and training with them, between processes
// of one machine:
//
//	go test -run '^$' -bench 'AllReduce/p=2/lane=local' ./bench/collective
//
// A test tells how much of the exchange a transformer's backward hides, over simulated links of
// 1 GB/s and in their time, whatever else this machine does:
//
//	go test -v -run MostOfTheExchange ./bench/collective
//
// The process that tests is rank 0 and hosts the store; it starts itself again for each other rank.
// Bytes are those of one member's whole array, as nccl-tests count them.
package collective
