// Package median computes medians, which is how gpucheck sums up what it measures.
package median
