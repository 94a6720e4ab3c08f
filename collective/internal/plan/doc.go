// Package plan says, for one operation of a group, which member sends what to whom, and what it
// sums when. It is pure: it knows neither bytes nor time.
//
// # Slots
//
// An operation's data is cut into slots. Every member's array has as many pieces as there are
// members. [Raw] is a piece of one member's array, as that member brought it. [Sum] is the sum of
// a piece over all members. A plan only moves slots, and sums a piece where all its raw slots are.
// So a sum is always made at one place, in the order of ranks, and every algorithm gives the same
// bits on all members.
//
// # Plans
//
// A [Plan] is one member's list of steps. In a step a member sends, then receives, then sums; it
// begins the next one when it has all of this one. A member may be any number of steps ahead of
// another: what arrives early waits for its step. The plans of the members of one operation fit
// together where all are made with the same arguments but the rank. They end in every order in
// which messages may arrive.
//
// # Memory
//
// A member is sent each slot once, and may hold them to the end, with what arrives early. Of p
// members' arrays of p pieces these are at most 3p pieces in an AllReduce, 2p in a ReduceScatter
// and an AllToAll, and p where pieces are only moved on. A Reduce, and an AllReduce by Spread,
// brings whole arrays together: p² + p pieces.
package plan
