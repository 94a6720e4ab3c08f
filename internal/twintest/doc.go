// Package twintest keeps a file that is another one in other words, such as the loops of a narrower
// vector, equal to it: what cannot be a type parameter is written once and copied by a test.
package twintest
