package kv

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// Sum is what Add makes of a value, for those who write a Store. The number under a missing key is
// 0.
func Sum(old []byte, there bool, delta int64) (int64, error) {
	var n int64
	if there {
		var err error
		if n, err = ParseDecimal(old); err != nil {
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

// longestNumber is where the search for a number ends: it must not take long to find none in a long
// value.
const longestNumber = 4 << 10

// ParseDecimal reads a number as C++'s stoll does: blanks before it and anything after it do not
// matter.
func ParseDecimal(text []byte) (int64, error) {
	s := bytes.TrimLeft(text[:min(len(text), longestNumber)], " \t\n\v\f\r")
	end := 0
	if end < len(s) && (s[0] == '-' || s[0] == '+') {
		end++
	}
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(s[:end]), 10, 64)
	if err != nil || end == len(s) && len(text) > longestNumber {
		return 0, fmt.Errorf("%w: %q, expected a decimal number between %d and %d", ErrNotANumber,
			Clip(string(text[:min(len(text), longestNumber)])), int64(math.MinInt64), int64(math.MaxInt64))
	}
	return n, nil
}

// Copied is a copy of b that is not nil.
func Copied(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }
