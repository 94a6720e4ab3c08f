package bulk

import (
	"bufio"
	"net"
	"sync"
)

// wideBytes is how many bytes a stripe's socket is given, or asked for, at a time: several TLS
// records, which cost the system less together than one by one.
const wideBytes = 128 << 10

// wide is a connection below TLS, which reads and writes records one by one. Before collect it
// passes them on. After it, reads take what the socket has, and writes wait for more, or for flush.
// Writes and flush may come from several goroutines, reads from one.
type wide struct {
	net.Conn
	in *bufio.Reader // nil before collect: who has not proved itself yet gets no memory

	mu  sync.Mutex
	out *bufio.Writer // likewise
}

// collect is called once, while nobody reads.
func (w *wide) collect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in, w.out = bufio.NewReaderSize(w.Conn, wideBytes), bufio.NewWriterSize(w.Conn, wideBytes)
}

func (w *wide) Read(b []byte) (int, error) {
	if w.in == nil {
		return w.Conn.Read(b)
	}
	return w.in.Read(b)
}

func (w *wide) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.out == nil {
		return w.Conn.Write(b)
	}
	return w.out.Write(b)
}

// flush sends what waits.
func (w *wide) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Flush()
}
