// Package status is "weft status". It follows the rendezvous of a job without taking part in it,
// and shows each view: as text, in place on a terminal, as lines of what has changed, or as JSON.
package status
