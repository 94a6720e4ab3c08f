// Package trace is what calls look like over time: spans, and files of them that Perfetto opens.
//
// A worker gives a [Sink] one [Span] for every call that it made or served, when the span has
// ended. The callee's span has the caller's as its parent, and a call that a function makes has the
// function's span as its parent, so the spans of all workers of a job form trees.
//
// A backward gives each worker that takes part a span for its part, in which lie spans for
// computing, for waiting, and for each message of gradients from when it is sent until it is
// answered. The first message that a worker gets is answered when its part is over.
//
// [NewChrome] writes spans as Chrome trace events, which ui.perfetto.dev and chrome://tracing open;
// [Merge] makes one file of those of several workers. Times in a file count from the trace's start,
// which its first event tells in nanoseconds since 1970, so that a reader's float64 holds them
// exactly; Merge lines up traces that started at different times. Worker clocks are taken as they
// are: hosts whose clocks differ show it.
//
// Everything but [Merge]'s arguments is safe for concurrent use. A sink never holds up a call: what
// it cannot take, it drops, and says so.
package trace
