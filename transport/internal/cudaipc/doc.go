// Package cudaipc is the lane cuda: tensors on a GPU that both ends use, within it.
//
// Each sender has an outbox on every such GPU, which the receiver opens. A transfer's pieces are
// copied into the outbox, and from there into the receiver's buffers, in the order of the GPU's
// work. A message's tensors that are not on such a GPU go by another lane, whose ticket stands
// behind this one's. There is no such lane but on Linux.
package cudaipc
