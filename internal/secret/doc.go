// Package secret is the secret that the members of a job share: what it may be, and what is derived
// from it.
//
// A token is a secret that [New] made: 256 random bits, with a checksum that finds typing errors.
// Nobody can guess one. People also choose secrets of their own. Such a secret is refused where it
// is weak, and goes through argon2id before anything else is made of it: who tries secrets out,
// against whatever was derived from the right one, pays for an argon2id with every try.
//
// The job's id goes into all that is derived, so that one secret serves two jobs and neither's keys
// are worth anything in the other.
package secret
