// Package resilient trains one model on workers that may be lost, and others that come, without
// stopping.
//
// [New] makes a [Team] of the members of a group. [Team.Step] makes one step of training on rows
// that all members share: it computes this member's, sums the gradients of all, and has the
// optimizer step. [Join] is for a worker that comes later. [Each] is the loop of a worker under
// weft run, where nodes come and go.
//
// # When a member is lost
//
// A step is made by all that are left or by none. Sums that anybody has count, and go to those who
// lack them. Sums that nobody has are made again: the rows of who was lost are computed by the
// others, which keep what they had computed of their own. So losses and parameters are those of an
// undisturbed run, but for the order in which numbers are added. Links stay. Who goes on is agreed
// on by [collective.Group.Without], which has one answer, so that two halves never both train.
//
// # When a worker comes
//
// It is a member from the next step on, without rows, and keeps the sums of all steps. Meanwhile it
// gets parameters and the optimizer's state as they were before that step from all others, each a
// part, and makes the steps that it has kept. When its state has the digest of everybody else's it
// gets rows.
//
// # What the program owes
//
// All members have the same model, rule, rows and schedule. What a loss function draws at random is
// to depend on the step and the row. The team owns the optimizer: it calls Step and Advance. A Team
// is used by one goroutine at a time; its values of parameters are the model's own tensors.
package resilient
