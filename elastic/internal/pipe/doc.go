// Package pipe is the pipe by which an agent tells a worker its places.
//
// The agent writes with Offer, which never waits: a worker that does not read misses what there is
// no room for. Unread says how much the worker has left in the pipe; a worker that has never read
// has not called elastic.Join. The worker opens its end with Inherited, which refuses any other
// file: ID tells the pipe from those.
package pipe
