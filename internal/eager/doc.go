// Package eager makes who reads a socket look again for a moment before it sleeps, where that has
// lately been the faster way.
//
// A [Conn] is for one reader. How many look at a time is bounded by a [Lookout], which those of one
// network or server share. Nothing else changes: deadlines, Close and errors are the socket's.
package eager
