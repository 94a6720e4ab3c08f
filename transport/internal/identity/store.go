package identity

import "crypto/tls"

// storeALPN keeps a store's TLS session apart from those of links: neither can be led to the
// other's door.
const storeALPN = "weft-store/1"

// StoreTLS is for the store of a job, at its server and at its clients alike: each end shows that
// it is of the job and sees that the other is, as the ends of links do, and both name the job's id.
// A client need not know the name of who serves. Errors of its handshakes wrap ErrIdentity at the
// end that refuses; the other end's are told by crypto/tls. The caller owns the result; what it
// shows stays the Identity's, which renews it.
func (id *Identity) StoreTLS() *tls.Config {
	return TLSConfig(id, storeALPN)
}
