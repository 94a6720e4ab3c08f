// Package ring keeps the last so many of something, in the order in which they came. A [Ring] is
// not safe for concurrent use: a lock of its owner guards it.
package ring
