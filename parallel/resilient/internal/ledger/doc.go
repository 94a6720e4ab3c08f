// Package ledger is what the members of a team know of one another, as a state machine without
// clocks, goroutines or messages: who has the state, which step is under way, which sums of it are
// there, which rows are in them, and what has to be done again.
//
// A [Member] notes what has happened to one member. When members come together anew, as after a
// loss, each tells the others its [Status], and [Decide] makes of all of them one [Plan]. It is a
// function of the statuses alone, so that all members that have heard them plan the same. Who has
// not heard them, as another one was lost meanwhile, tells its status again.
//
// A step is cut into buckets of gradients. The sum of a bucket is made of contributions that cover
// each row of the step once. A sum that one member has counts: the others get it from there. Sums
// that nobody has are made anew, of what members have covered and of the rows that nobody has
// covered any more, which the plan divides among those who can compute them.
package ledger
