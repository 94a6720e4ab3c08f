// Package elementwise computes what goes element by element: functions of one or two tensors,
// folds, and whole expressions ([kernels.Map]).
//
// [NewPlan] makes a map ready once; [Plan.Begin] starts a run of it, which [Run.Rows] may compute
// block by block while a producer's results are still in the cache, and [Run.End] ends. The
// elements are taken in tiles that stay in the first cache. Sums are carried out in float64, in
// parts that depend on sizes alone.
//
// A plan is immutable and safe for concurrent runs. A run is one goroutine's for each of its parts.
package elementwise
