// Package who asks the kernel which user the other end of a connection belongs to.
//
// On one host no secret is needed for that: the kernel knows. [UID] answers for TCP between
// processes of one host and for unix sockets, on Linux. Other systems do not say it, see
// [ErrUnsaid]. Everything here is safe for concurrent use.
package who
