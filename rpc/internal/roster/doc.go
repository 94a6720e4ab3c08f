// Package roster is who takes part in a job, as one worker sees it: a state machine without I/O,
// clock or goroutine. The worker's shell tells a [Roster] what happened, and then does what
// [Roster.Actions] says. A Roster is not safe for concurrent use. Nothing in it depends on time:
// what takes too long is a failed dial or a lost link, and the shell tells of those.
//
// # Lives
//
// A worker that dies, or leaves, may come back under its rank and name. Each life has an
// incarnation, a number that grows with every joining of the job; at a rank the higher incarnation
// is the present one, and news of a lower one is late.
//
// # News
//
// Not every pair of workers has a link: each has links with its fingers, the workers 1, 2, 4, 8 …
// places from it in the ring of all ranks, and with whom it called. Arrivals, leavings and losses
// travel over the links as [News]; each is passed on once. Who gets a link whose other end knows of
// others ([Roster.Digest]) exchanges all it knows.
//
// # Losses
//
// A worker is lost, to another, on that one's own evidence alone: the link broke, or dials failed.
// That somebody else lost it makes one look: who has a link trusts it, who has none dials, and
// waits for each answer as long as a link may be silent and join its lanes. So a broken path
// between two workers is no loss to the others. Lost is final for a life: who was cut off must come
// back as a new one. Leaving is the leaver's own word, and needs no look.
//
// When a neighbour in the ring goes, the next one is linked with: the links stay one ring, and
// nobody goes unwatched.
package roster
