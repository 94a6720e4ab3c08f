package store

import "bytes"

// Sum is what Add makes of a value, for those who write a Store. The number under a missing key is
// 0.
func Sum(old []byte, there bool, delta int64) (int64, error) {
	var n int64
	if there {
		var err error
		if n, err = parseDecimal(old); err != nil {
			return 0, err
		}
	}
	return n + delta, nil
}

// Compared is what CompareSet makes of a value, for those who write a Store: its answer, and
// whether it stores desired.
func Compared(old []byte, there bool, expected, desired []byte) (answer []byte, stores bool) {
	switch {
	case bytes.Equal(old, expected):
		return desired, true
	case there:
		return old, false
	}
	return expected, false // PyTorch's answer: as if it were there
}
