// Package accounts says for whom a place counts that a stranger takes at a server: for a host, or
// for a user of this host. The functions are pure.
package accounts
