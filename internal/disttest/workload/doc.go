// Package workload is what workers do in the tests with real processes: a mix of calls whose
// results are known, and the joining of a worker by a description that fits in JSON.
package workload
