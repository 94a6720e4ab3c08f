// Package interop tests with PyTorch at the other end. Stores: its TCPStore client on our server,
// our client on its server, both at one FileStore's file; the same calls on its server and on ours
// must give the same answers. Launchers: its scripts run under weft run, our workers under
// torchrun. Checkpoints: Python's safetensors reads ours, and we read its files.
//
// A Python process runs what testdata/peer.py is told. The tests need PyTorch, and the build tag
// interop: make interop, or make interop PYTHON=/path/to/python. They are run with releases from
// 1.13 to 2.15. They ask the ends of a release what it can, and do not look at its number. Of what
// it cannot, they require that it says so.
//
// With -record they write what the two ends say to each other to a file, unless another release
// says the same. The tests of package store, which need no PyTorch, replay the files to our server.
package interop
