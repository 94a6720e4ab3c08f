package kv

import (
	"fmt"
	"time"
)

// Pair is a key and its value.
type Pair struct {
	Key   string
	Value []byte
}

// DefaultTimeout bounds an operation whose context has no deadline, if the store's configuration
// says nothing else.
const DefaultTimeout = 300 * time.Second

// Limits bounds what is accepted from a caller, from the network and from a file, in bytes and
// before any allocation. The zero value means PyTorch's limits.
type Limits struct {
	Key   int // longest key, with the slash that is put before every key; 0 means 8 KiB
	Value int // longest value, and most bytes of all keys of one call together; 0 means 8 MiB
	Keys  int // most keys in one call, and most keys one client may watch; 0 means 131072

	// Memory is most bytes of all keys and values together, and of the keys that clients wait for
	// or watch, each counting 64 bytes more than it has. What would exceed it fails with ErrFull. 0
	// means 1 GiB. PyTorch has no such limit.
	Memory int
}

// Defaulted is l with the defaults in place of zeros.
func Defaulted(l Limits) Limits {
	if l.Key == 0 {
		l.Key = 8 << 10
	}
	if l.Value == 0 {
		l.Value = 8 << 20
	}
	if l.Keys == 0 {
		l.Keys = 128 << 10
	}
	if l.Memory == 0 {
		l.Memory = 1 << 30
	}
	return l
}

// CheckLimits refuses limits below 0.
func CheckLimits(l Limits) error {
	if min(l.Key, l.Value, l.Keys, l.Memory) < 0 {
		return fmt.Errorf("limits must not be negative, but are %+v", l)
	}
	return nil
}

// CheckKeys refuses empty keys, and what exceeds the limits.
func CheckKeys(l Limits, keys []string) error {
	if len(keys) > l.Keys {
		return fmt.Errorf("%w: %d keys in one call, at most %d allowed", ErrTooLarge, len(keys), l.Keys)
	}
	total := 0
	for _, k := range keys {
		if k == "" {
			return fmt.Errorf("%w: it is empty", ErrBadKey)
		}
		if len(k)+1 > l.Key {
			return fmt.Errorf("%w: %w: the key has %d bytes, at most %d allowed", ErrBadKey, ErrTooLarge, len(k), l.Key-1)
		}
		total += len(k) + 1
	}
	if total > l.Value && len(keys) > 1 {
		return fmt.Errorf("%w: the keys have %d bytes together, at most %d allowed", ErrTooLarge, total, l.Value)
	}
	return nil
}

// CheckValue refuses a value that is too long.
func CheckValue(l Limits, v []byte) error {
	if len(v) > l.Value {
		return fmt.Errorf("%w: the value has %d bytes, at most %d allowed", ErrTooLarge, len(v), l.Value)
	}
	return nil
}
