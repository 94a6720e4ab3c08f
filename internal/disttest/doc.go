// Package disttest holds tests of what no room can show alone: gradients that cross workers. Each
// test starts several rpc.Workers of one process on a simulated network, inside a bubble of
// testing/synctest, and checks at the end that no pass, no host buffer and no goroutine is left.
//
// The random test compares distributed backwards with autodiff.Backward on the same computation.
// Its subtests are named after their seeds: go test -run 'Random.*/seed=17$' plays one again. make
// soak runs a hundred times as many.
package disttest
