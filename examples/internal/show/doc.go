// Package show is what the example programs share and what is not their point: starting a program's
// workers, progress on a terminal or in lines, and a picture of the losses.
//
// A [Progress] has one user at a time; everything else is safe for concurrent use. Nothing here
// ends the process.
package show
