// Package desk matches what the members of a group call. It is pure: no I/O, no clock, no lock.
//
// Every operation has a [Key], which all members give it alike. A [Desk] is one member's. It keeps
// what other members have sent of an operation until this member comes to that step. Before that it
// compares: what another member calls under a key must be what this one calls. Where they differ
// the operation fails, and whoever finds it tells all; the group lives on.
//
// Failures come first-come: an operation has one outcome here, and an operation that has failed
// before it was begun fails at once when it is. What a member may send ahead is bounded.
package desk
