// Package storecrash holds the test of a store's server that is killed under load and comes back
// with its journal.
package storecrash
