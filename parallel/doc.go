// Package parallel trains one model on several workers at once, each on rows of its own.
//
// [Rows] says which rows a rank takes at a step. It is a function of the seed and the step alone:
// however many ranks there are, together they take the same rows.
//
// [Replicate] gives all members of a group the same parameters. [Replicas.Backward] then gives, on
// all of them, the same gradients: of the mean over all rows of all ranks. With the same optimizer
// everywhere parameters stay the same, bit for bit.
//
// # How gradients travel
//
// A large gradient is summed as it lies, without a copy. Small ones are packed into buckets. They
// leave while the backward goes on, in one order on all ranks: that in which rank 0's came. The
// last bucket also tells how many rows each rank had, and which parameters it used. So rows may
// differ in number, also from step to step, and be none, without another message. What a rank has
// brought is given back when its sum is there. Sparse gradients travel as rows; [Wire] and
// [LowRank] have dense ones travel in fewer bytes.
//
// What is expected is what was used in the step before. A parameter that no rank used then is not
// sent; one that is used all the same follows at the end of the backward, as all do in the first
// step. So no parameter costs anything that nobody uses, and nobody has to say which these are.
//
// The rows of a step weight its gradients before they leave: the backward begins with this rank's
// rows divided by those of all ranks in the step before. Only where that number has changed
// gradients are multiplied once more.
//
// # Failures
//
// A step fails on all ranks or on none, unless a member is lost. A rank whose backward fails says
// so in the last bucket, and all get a [FailureError] that names it. A lost worker is named by a
// [collective.LostError].
package parallel
