package main

import "encoding/binary"

// A few commands as a client of torch 1.13 sends them, for connections that do what no Client does.
// Keys have a slash in front.

func text(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)+1))
	return append(append(b, '/'), s...)
}

// wait is answered by a zero when the key is there.
func wait(key string) []byte {
	return text(binary.LittleEndian.AppendUint64([]byte{5}, 1), key)
}

// checkNothing is answered by a zero at once, also while the connection waits.
func checkNothing() []byte {
	return binary.LittleEndian.AppendUint64([]byte{4}, 0)
}

// half is the beginning of an add.
func half() []byte {
	return text([]byte{3}, "half")[:11]
}
