// Package netns tests workers on several hosts: each is a process in a network namespace of its
// own, and a switch in the test's process carries their packets, with delay, rates, loss and cuts.
//
// A namespace is made with its process and has no name, so it ends with it, also where the test is
// killed. Its one interface is a TUN device with an MTU of 1500, whose other end the switch holds:
// it sees whole IP packets, and no offload makes them larger. (A kernel's netem would do the
// switch's work; not every kernel has it.) Hosts also run examples/elastic under weft run, to see
// what becomes of a job while one of its machines is cut off.
//
// The tests need root, and the build tag netns: make netns. The switch's own tests need neither.
package netns
