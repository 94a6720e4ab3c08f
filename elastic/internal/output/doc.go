// Package output shows the output of several workers line by line on one screen, and keeps it in
// files.
//
// Each stream of a worker has a Lines, which cuts it into lines and puts a label in front of each.
// A Sink is where lines are shown, such as the agent's stdout; sinks that may be one terminal share
// a screen, so that no two lines mix. A worker's line waits until it is written, as with a pipe.
// What the agent itself says never waits. An error of writing stalls nobody: the sink reports it.
package output
