package main

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"time"
)

// median is that of n calls, after some that warm up.
func median(n int, call func() error) (time.Duration, error) {
	var errs error
	took := make([]time.Duration, n)
	for range 50 {
		errs = errors.Join(errs, call())
	}
	for i := range took {
		if errs != nil {
			return 0, errs
		}
		began := time.Now()
		errs = call()
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2], errs
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// trips measures one kind of round trip after the other.
func (b *bench) trips(lane string, kinds ...trip) error {
	for _, k := range kinds {
		mid, err := median(k.n, k.call)
		if err != nil {
			return err
		}
		b.emit(lane, k.name, k.n, mid*time.Duration(k.n), micros(mid), "p50-µs")
	}
	return nil
}

type trip struct {
	name string
	n    int
	call func() error
}

// roundTrips is one client that does one thing at a time.
func (b *bench) roundTrips(c context.Context, server *process) error {
	s, err := dial(c, server.addr)
	if err != nil {
		return err
	}
	defer s.Close()
	value, a := []byte("vvvvvvvv"), []byte("a")
	if err := errors.Join(s.Set(c, "k", value), s.Set(c, "cas", a)); err != nil {
		return err
	}
	return b.trips(b.lane,
		trip{"add", b.sizes.trips, func() error { _, err := s.Add(c, "n", 1); return err }},
		trip{"set+get", b.sizes.trips * 2 / 3, func() error {
			if err := s.Set(c, "k", value); err != nil {
				return err
			}
			_, err := s.Get(c, "k")
			return err
		}},
		trip{"get", b.sizes.trips, func() error { _, err := s.Get(c, "k"); return err }},
		trip{"compare_set", b.sizes.trips, func() error { _, err := s.CompareSet(c, "cas", a, a); return err }},
		trip{"wait", b.sizes.trips, func() error { return s.Wait(c, "k") }})
}

// echoes is the floor: as many bytes as an add has, there and back, and no store.
func (b *bench) echoes(c context.Context, server *process) error {
	nc, err := new(net.Dialer).DialContext(c, "tcp", server.addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := b.trips("echo", trip{"add", b.sizes.trips, echoOnce(nc)}); err != nil {
		return err
	}
	return b.rate(c, server, "echo", "echo", b.adds)
}

func echoOnce(nc net.Conn) func() error {
	var there, back [19]byte
	return func() error {
		if _, err := nc.Write(there[:]); err != nil {
			return err
		}
		_, err := io.ReadFull(nc, back[:])
		return err
	}
}
