// Package identity says who is a member of a job, and shows it.
//
// An [Identity] comes from the job's token, or from a user's own certificates. [TLSConfig] makes
// both ends of a connection show that they are of one job. [Marks] let a listener see, before a
// handshake, that a member dials. [Refusals] tells the operator who was refused, and why.
package identity
