// Package hostile is clients that mean harm, for tests: with a certificate of the job or without
// one. They speak QUIC and TLS well enough to get as far as they can, and then what the protocol
// does not allow.
package hostile
