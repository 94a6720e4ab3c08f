// Package turns puts what several groups do into one order, on all of their members. It is pure.
//
// Each member has a [Line] for what must be in one order on it: the operations on its GPU, of all
// groups. When all members of an operation's group have called it, each gives it a time of its line
// ([Line.Enter]), and they tell one another; its turn is the latest of these times ([Line.Settle]).
// Turns are the same on all members, and a line lets an operation go once no other can come before
// it. So lines agree without a coordinator, and groups may overlap as they like.
//
// An operation must not enter before all its members have called it: it holds up those behind it.
package turns
