package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// witnessVariable is the environment variable that tells a worker whom it reports to.
const witnessVariable = "WEFT_BENCH_ELASTIC_WITNESS"

// sighting is a worker that came, or went.
type sighting struct {
	rank, pid int
	at        time.Time
	gone      bool
}

// witness hears of workers when they start and end. With stay they live until dismiss, else until
// they have reported.
type witness struct {
	seen chan sighting
	stay bool
	l    net.Listener
	runs sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newWitness(stay bool) (*witness, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &witness{seen: make(chan sighting, 1024), stay: stay, l: l, conns: map[net.Conn]bool{}}
	w.runs.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			w.conns[nc] = true
			w.mu.Unlock()
			w.runs.Go(func() { w.hear(nc) })
		}
	})
	return w, nil
}

func (w *witness) hear(nc net.Conn) {
	defer func() {
		w.mu.Lock()
		delete(w.conns, nc)
		w.mu.Unlock()
		_ = nc.Close()
	}()
	r := bufio.NewReader(nc)
	line, err := r.ReadString('\n')
	s := sighting{at: time.Now()}
	if _, bad := fmt.Sscan(line, &s.rank, &s.pid); err != nil || bad != nil {
		return
	}
	w.seen <- s
	if w.stay {
		_, _ = io.Copy(io.Discard, r)
		s.at, s.gone = time.Now(), true
		w.seen <- s
	}
}

// dismiss lets every worker end, and listens no more.
func (w *witness) dismiss() {
	_ = w.l.Close()
	w.mu.Lock()
	for nc := range w.conns {
		_ = nc.Close()
	}
	w.mu.Unlock()
	w.runs.Wait()
}

// report is the life of a worker.
func report(to string) error {
	nc, err := net.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer nc.Close()
	if _, err := fmt.Fprintf(nc, "%s %d\n", os.Getenv("RANK"), os.Getpid()); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, nc)
	return err
}
