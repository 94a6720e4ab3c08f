// Package link makes links over QUIC. It is the only package that knows all lanes.
//
// [New] makes a network. A dialler and a listener set up a link in four words (negotiate.go): they
// agree on lanes and join them. A link is a [mux.Session] on the conduit of the best lane, or on a
// stream of the QUIC connection.
//
// Who has not proved itself holds one of few places (admission.go). In a crowd only dials with the
// mark of a member are answered (filter.go).
package link
