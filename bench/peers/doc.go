// Peers runs Weft, gRPC-Go and torch on the same calls, tensors, training steps, operations of a
// store and elastic jobs, in turns, and prints one table of medians.
//
//	go run ./bench/peers [-rounds 5] [-time 1s] [-python /usr/bin/python3] [-only jobs|local|store|elastic]
//
// Machines drift, so a round runs every system once before the next round begins, and only figures
// of one table compare. A system that cannot run here is left out, with the reason.
package main
