package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/weft-project/weft/internal/lenient"
)

// rates is what several processes get out of one server.
func (b *bench) rates(c context.Context, server *process) error {
	return errors.Join(b.rate(c, server, b.lane, "add", b.adds), b.rate(c, server, b.lane, "get", b.gets))
}

// rate shares total operations among client processes, which begin together.
func (b *bench) rate(c context.Context, server *process, lane, op string, total int) error {
	for _, n := range b.clients {
		var all []*process
		var errs error
		begin := (*exec.Cmd).Start
		if lenient.Crowded(n, runtime.NumCPU()) { // as weft run starts workers
			begin = lenient.Start
		}
		for range n {
			p, err := startBy(c, begin, "client", op, server.addr, fmt.Sprint(total/n))
			if err != nil {
				return errors.Join(errs, err)
			}
			all = append(all, p)
		}
		before, errBefore := server.busy()
		first, last, busy, err := together(all)
		after, errAfter := server.busy()
		for _, p := range all {
			errs = errors.Join(errs, p.stop())
		}
		if errs = errors.Join(errs, err); errs != nil {
			return errs
		}
		name := op
		if op == "echo" {
			name = "add" // what it is the floor of
		}
		name = fmt.Sprintf("%s/clients=%d", name, n)
		b.emit(lane, name, total, last.Sub(first), float64(total)/last.Sub(first).Seconds(), "ops/s")
		if busy += after - before; errors.Join(errBefore, errAfter) == nil {
			b.emit(lane, "cpu/"+name, total, busy, micros(busy)/float64(total), "cpu-µs")
		}
	}
	return nil
}

// together lets clients begin when all are ready, and reads when the first began and the last
// ended, and how long they kept processors.
func together(all []*process) (first, last time.Time, busy time.Duration, err error) {
	for _, p := range all {
		if _, err := p.out.ReadString('\n'); err != nil {
			return first, last, 0, fmt.Errorf("a client is not ready: %w", err)
		}
	}
	for _, p := range all {
		if _, err := io.WriteString(p.hold.(io.Writer), "go\n"); err != nil {
			return first, last, 0, err
		}
	}
	for _, p := range all {
		var began, ended, kept int64
		if _, err := fmt.Fscan(p.out, &began, &ended, &kept); err != nil {
			return first, last, 0, fmt.Errorf("a client does not say how long it took: %w", err)
		}
		busy += time.Duration(kept)
		if b := time.Unix(0, began); first.IsZero() || b.Before(first) {
			first = b
		}
		if e := time.Unix(0, ended); e.After(last) {
			last = e
		}
	}
	return first, last, busy, nil
}

// client is one of them: it does its share of an operation when it is told to.
func client(args []string, out io.Writer) error {
	if len(args) != 3 {
		return fmt.Errorf("expected add, get or echo, an address and a count, got %q", args)
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	call, end, err := operation(c, args[0], args[1])
	if err != nil {
		return err
	}
	defer func() { _ = end() }()
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	busy, began := usage(), time.Now()
	for range n {
		if err := call(); err != nil {
			return err
		}
	}
	ended := time.Now()
	fmt.Fprintln(out, began.UnixNano(), ended.UnixNano(), (usage() - busy).Nanoseconds())
	return nil
}

// operation makes the connection, and the call that is counted.
func operation(c context.Context, op, addr string) (call func() error, end func() error, err error) {
	if op == "echo" {
		nc, err := new(net.Dialer).DialContext(c, "tcp", addr)
		if err != nil {
			return nil, nil, err
		}
		return echoOnce(nc), nc.Close, nil
	}
	s, err := dial(c, addr)
	if err != nil {
		return nil, nil, err
	}
	call = func() error { _, err := s.Add(c, "c", 1); return err }
	if op == "get" {
		call = func() error { _, err := s.Get(c, "shared"); return err }
	}
	if err := errors.Join(s.Set(c, "shared", []byte("xxxxxxxx")), call()); err != nil {
		_ = s.Close()
		return nil, nil, err
	}
	return call, s.Close, nil
}

// usage is how long this process has kept processors, in the kernel too.
func usage() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // cannot fail
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
