// Package mesh arranges the workers of a job along three axes, and makes a group of each line: of
// the stages of a pipeline, of the copies of a stage that take different rows, and of the members
// that have different parts of its weights.
//
// A [Mesh] is pure: it says which place a rank has. [Mesh.Open] makes the groups; all members of
// the job's group call it. Along Data, package parallel or parallel/shard takes gradients together;
// along Tensor, collective/tensors has Enter and Leave; along Pipeline, stages send to one another.
//
// Groups are independent: what is called in one needs no order with what is called in another. They
// are closed with [Groups.Close]. A lost worker ends the groups that it is in.
package mesh
