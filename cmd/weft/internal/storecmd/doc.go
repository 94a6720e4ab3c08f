// Package storecmd is "weft store". It serves a store over TCP, and offers each operation of a
// store to a shell.
//
// Values go through pipes unchanged. On a terminal they are quoted where they could steer it.
package storecmd
