// Outer simulates the training of one model over slow links by up to 10,000 workers, in groups of
// groups: how long an outer step takes, what each worker sends, and what fails first. It draws
// docs/outer-workers.svg and docs/outer-losses.svg, and prints the table of docs/internet.md.
//
//	go run ./bench/outer
//
// It is a model, not a measurement: pure, seeded, the same at each run. Workers differ in speed,
// uplink and latency, and are lost and come back at random. An exchange costs what that of a group
// (package collective) sends, over the slowest uplink that takes part; a loss ends it, and it is
// made again by those that are left, after the time in which a loss is noticed (package rpc). Inner
// steps go on meanwhile, as with outer.Config's Delay and FirstCalls. Nobody makes inner steps
// while newcomers get parameters and momentum, as in outer's Regroup.
package main
