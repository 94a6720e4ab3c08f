// Package flock locks files against other processes, and against other opens by this one, by
// flock(2). The lock belongs to the open file: closing it, or the end of the process, gives it
// back.
package flock
