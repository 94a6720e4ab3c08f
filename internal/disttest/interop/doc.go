// Package interop tests with PyTorch at the other end. Stores: its TCPStore client on our server, our client on its server, both at
// one FileStore's file; the same calls on its server and on ours must give the same answers. Launchers: its scripts run under weft run, our workers under
// torchrun. Checkpoints: Python's safetensors reads ours, and we read its files.
//
// A Python process runs what testdata/peer.py is told. The tests need PyTorch, and the build tag interop: make interop, or
// make interop PYTHON=/path/to/python. Releases from 1.13 on are known; those from 2.0 on can do more and are asked for it.
//
// With -record they write what the two ends say to each other to the files that the tests of package store replay to our server, which need no PyTorch.
package interop
