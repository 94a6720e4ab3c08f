//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	strangers = 64                    // addresses
	redialers = 16                    // that make silent connections
	redialGap = 10 * time.Millisecond // between two of one of them
)

// floodSocket keeps silent connections to a unix socket.
func floodSocket(o order) error {
	return silence(o, func(c context.Context, _ int) (net.Conn, error) { return new(net.Dialer).DialContext(c, "unix", o.At) })
}

// floodStore keeps silent connections to a port, from many addresses.
func floodStore(o order) error {
	return silence(o, func(c context.Context, n int) (net.Conn, error) {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n%strangers))}
		return (&net.Dialer{LocalAddr: from}).DialContext(c, "tcp", o.At)
	})
}

// silence makes connections that say nothing, and makes each again when it is closed.
func silence(o order, dial func(c context.Context, n int) (net.Conn, error)) error {
	c, cancel := context.WithTimeout(context.Background(), time.Duration(o.Seconds*float64(time.Second)))
	defer cancel()
	closed := make(chan struct{}, o.Count)
	for range o.Count {
		closed <- struct{}{}
	}
	var made atomic.Int64
	var under sync.WaitGroup
	for range redialers {
		under.Go(func() {
			for {
				select {
				case <-closed:
				case <-c.Done():
					return
				}
				conn, err := dial(c, int(made.Load()))
				if err == nil {
					made.Add(1)
					under.Go(func() {
						stop := context.AfterFunc(c, func() { _ = conn.Close() })
						defer stop()
						_, _ = conn.Read(make([]byte, 1)) // until it is closed at either end
						_ = conn.Close()
						closed <- struct{}{}
					})
				} else {
					closed <- struct{}{}
				}
				time.Sleep(redialGap)
			}
		})
	}
	under.Wait()
	fmt.Printf("           %d silent connections were made\n", made.Load())
	return nil
}

// burn spends processor time evenly, as far as others leave it any.
func burn(o order) error {
	rate, start := o.CPU/o.Seconds, time.Now()
	var under sync.WaitGroup
	for range int(rate + 1) {
		under.Go(func() {
			for time.Since(start).Seconds() < o.Seconds {
				spent, err := processor()
				if err == nil && spent < rate*time.Since(start).Seconds() {
					for from := time.Now(); time.Since(from) < time.Millisecond; { //nolint:revive // this is what it is for
					}
				} else {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	under.Wait()
	return nil
}

// processor is the time that this process has had, in seconds.
func processor() (float64, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, err
}

// socketOf finds the socket of lane local of a process.
func socketOf(proc string) (string, error) {
	links, err := filepath.Glob(proc + "/fd/*")
	if err != nil {
		return "", err
	}
	own := map[string]bool{}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil {
			own[strings.TrimSuffix(strings.TrimPrefix(to, "socket:["), "]")] = true
		}
	}
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 8 && words[5] == "01" && own[words[6]] && strings.HasPrefix(words[7], "@weft-") {
			return words[7], nil
		}
	}
	return "", errors.New("there is no socket of lane local")
}
