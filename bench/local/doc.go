// Package local measures one process on one thread: products, training steps, and the overhead of
// small ops. bench/torch/local.py does the same with torch, and prints lines of the same form;
// `make peers PEERS='-only local'` runs both in turns.
package local
