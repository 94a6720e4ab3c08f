// Package fold sums arrays, and what else makes one array of several, element by element in the
// order in which they are given. So the same arrays give the same bits wherever they are folded.
package fold
