package wire

import (
	"cmp"
	"errors"
	"fmt"
	"math"
)

// Limits bounds what messages may claim, in both directions. The zero value of a field means its
// default.
type Limits struct {
	MaxHeader       int   // bytes; default 1 MiB
	MaxTensors      int   // at most 65535; default 4096
	MaxTensorBytes  int64 // of one tensor; default 4 GiB
	MaxMessageBytes int64 // of all tensors of a message; default 16 GiB
	MaxPeerBytes    int64 // of all large tensors that are being received on a link at a time; further ones wait; default 64 GiB
	// MaxQueued is how many bytes of messages, without their large tensors, may wait on a link to
	// be received; default 64 MiB. Beyond it the stream that holds the most is reset.
	MaxQueued int64
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxHeader:       cmp.Or(l.MaxHeader, 1<<20),
		MaxTensors:      cmp.Or(l.MaxTensors, 4096),
		MaxTensorBytes:  cmp.Or(l.MaxTensorBytes, 4<<30),
		MaxMessageBytes: cmp.Or(l.MaxMessageBytes, 16<<30),
		MaxPeerBytes:    cmp.Or(l.MaxPeerBytes, 64<<30),
		MaxQueued:       cmp.Or(l.MaxQueued, 64<<20),
	}
}

// Check reports every violation in one error.
func (l Limits) Check() error {
	var errs []error
	check := func(name string, v, most int64) {
		if v < 0 || v > most {
			errs = append(errs, fmt.Errorf("transport: Limits.%s is %d; it must be from 0 (the default) to %d", name, v, most))
		}
	}
	check("MaxHeader", int64(l.MaxHeader), math.MaxInt32)
	check("MaxTensors", int64(l.MaxTensors), math.MaxUint16)
	check("MaxTensorBytes", l.MaxTensorBytes, math.MaxInt64/2)
	check("MaxMessageBytes", l.MaxMessageBytes, math.MaxInt64/2)
	check("MaxPeerBytes", l.MaxPeerBytes, math.MaxInt64/2)
	check("MaxQueued", l.MaxQueued, math.MaxInt64/2)
	return errors.Join(errs...)
}
