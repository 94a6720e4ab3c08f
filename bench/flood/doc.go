//go:build linux

// Command flood shows what strangers who crowd at a job cost its members: 10,000 handshakes with a
// worker that stall and 10,000 silent connections to a store, each from 64 addresses of this host,
// and 1,000 silent connections to the socket of lane local, which are made again when they are
// closed. With -only tokens the handshakes bring a token that nobody gave, with -only marked what a
// member's dials have, overheard: of those the bar for calls is not promised. Where root runs it,
// nobody's processes (uid 65534) are the flood.
//
// In turns a process floods, and another one only burns as much processor time: it begins as many
// handshakes with a port where nobody listens, or it spins. Two workers call each other all the
// while, or two clients use the store, and others join and leave. Each must link with the worker,
// or reach the store, within two seconds, and the calls during a flood must reach 0.9 of those
// beside the burner, by the processors that either leaves: it exits with 1 otherwise.
package main
