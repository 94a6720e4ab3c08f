package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/weft-project/weft/store"
)

// dialling is how many connections are made at a time: more would overflow the queue of those that
// wait to be accepted.
const dialling = 64

// wake has many connections wait for one key, and sets it: how long until the last has heard of it,
// and what they cost the server.
func (b *bench) wake(c context.Context, server *process) error {
	s, err := dial(c, server.addr)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := s.Check(c, "gate"); err != nil {
		return err
	}
	before, errBefore := server.resident()
	all, err := crowd(c, server.addr, b.connections, append(wait("gate"), checkNothing()...))
	defer all.closeAll()
	if err != nil {
		return err
	}
	if err := all.each(expectByte); err != nil { // the answer to CHECK: it waits
		return err
	}
	after, errAfter := server.resident()
	type woken struct {
		at  time.Time
		err error
	}
	last := make(chan woken, 1)
	go func() {
		err := all.each(expectByte)
		last <- woken{time.Now(), err}
	}()
	began := time.Now()
	if err := s.Set(c, "gate", nil); err != nil {
		return err
	}
	w := <-last
	if w.err != nil {
		return w.err
	}
	took := w.at.Sub(began)
	b.emit(b.lane, fmt.Sprintf("wake/connections=%d", b.connections), 1, took, took.Seconds()*1e3, "ms")
	if errors.Join(errBefore, errAfter) == nil {
		b.emit(b.lane, fmt.Sprintf("memory/connections=%d", b.connections), 1, took, float64(after-before)/1024/float64(b.connections), "KiB")
	}
	return nil
}

type connections []net.Conn

// crowd makes connections that have all sent the same.
func crowd(c context.Context, addr string, n int, send []byte) (connections, error) {
	all := make(connections, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range dialling {
		wg.Go(func() {
			for ; i < n && errs[i%dialling] == nil; i += dialling {
				nc, err := new(net.Dialer).DialContext(c, "tcp", addr)
				if err == nil {
					all[i] = nc
					_ = nc.SetDeadline(time.Now().Add(patience))
					_, err = nc.Write(send)
				}
				errs[i%dialling] = err
			}
		})
	}
	wg.Wait()
	return all, errors.Join(errs...)
}

func (all connections) closeAll() {
	for _, nc := range all {
		if nc != nil {
			nc.Close()
		}
	}
}

// each does something with all at the same time.
func (all connections) each(f func(net.Conn) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, nc := range all {
		wg.Go(func() { errs[i] = f(nc) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// expectByte reads the zero that answers WAIT and CHECK.
func expectByte(nc net.Conn) error {
	var b [1]byte
	n, err := nc.Read(b[:])
	if err == nil && (n != 1 || b[0] != 0) {
		err = fmt.Errorf("expected one byte 0, got %v", b[:n])
	}
	return err
}

// manyKeys is one client that asks for many keys at once, before they are there: how long from the
// last Set to the answer.
func (b *bench) manyKeys(c context.Context, server *process) error {
	reader, err := dial(c, server.addr)
	if err != nil {
		return err
	}
	defer reader.Close()
	writer, err := dial(c, server.addr)
	if err != nil {
		return err
	}
	defer writer.Close()
	keys, pairs := make([]string, b.keys), make([]store.Pair, b.keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("key%06d", i)
		pairs[i] = store.Pair{Key: keys[i], Value: []byte("vvvvvvvv")}
	}
	began := time.Now()
	c, stop := context.WithCancel(c)
	defer stop()
	got := make(chan error, 1)
	var answered time.Time
	go func() {
		values, err := reader.MultiGet(c, keys...)
		answered = time.Now()
		if err == nil && len(values) != len(keys) {
			err = fmt.Errorf("expected %d values, got %d", len(keys), len(values))
		}
		got <- err
	}()
	const together = 1000
	for i := 0; i < len(pairs) && err == nil; i += together {
		err = writer.MultiSet(c, pairs[i:min(i+together, len(pairs))]...)
	}
	set := time.Now()
	if err != nil {
		return err
	}
	if err := <-got; err != nil {
		return err
	}
	took := answered.Sub(set)
	b.emit(b.lane, fmt.Sprintf("multi_get/keys=%d", b.keys), 1, answered.Sub(began), took.Seconds()*1e3, "ms")
	return nil
}
