// Package lane says what a lane of a link is: a way by which its bytes travel.
//
// A [Maker] makes a lane's ends when a link is set up: the dialler offers, a [Server] at the
// listener answers, and the dialler joins. An [End] may give a [Conduit], on which the link's
// frames travel, and a [Channel], which moves large tensors beside the frames.
//
// Here stands, too, what lanes share: [Span]s of tensors in a transfer, [RefusedTickets], and the
// proofs ([Prove], [LinkTag]) by which a connection shows that it belongs to a link. Lanes know
// this package, and none knows another lane. Only package link knows all lanes.
package lane
