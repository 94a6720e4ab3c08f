// Package tracing makes the spans of a worker's calls, gradients and backwards, and gives them to a
// sink of package trace. It only looks on: a nil [Tracer] does nothing and costs nothing, and
// nothing that a worker does depends on its spans.
package tracing
