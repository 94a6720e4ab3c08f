package web

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
)

// webPlaces are the places for connections to an HTTP server. Who comes when a host has all of its
// own, or when there are none left, gets that of the connection which has asked for nothing for the
// longest time, of the host that has the most. So silent connections, and those that send a request
// byte by byte, keep nobody out.
type places struct {
	most, perHost int

	mu    sync.Mutex
	taken []*place // in the order in which they came, or were answered last
}

// webPlace is one connection's.
type place struct {
	conn    net.Conn
	host    netip.Prefix
	serving bool // a request is being answered; held with webPlaces.mu
}

// hostOf is the host that a connection counts for: an IPv4 address, or an IPv6 network of 64 bits.
func hostOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip, bits := tcp.AddrPort().Addr().Unmap().WithZone(""), 64
	if ip.Is4() {
		bits = 32
	}
	host, _ := ip.Prefix(bits) // so many bits every address has
	return host
}

// enter takes a place, and says who is to go for it: nil for nobody, or the newcomer.
func (w *places) enter(p *place) (goes *place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = append(w.taken, p)
	of := map[netip.Prefix]int{}
	for _, t := range w.taken {
		of[t.host]++
	}
	crowded := p.host
	if of[p.host] <= w.perHost {
		if len(w.taken) <= w.most {
			return nil
		}
		for host, n := range of {
			if n > of[crowded] {
				crowded = host
			}
		}
	}
	at := slices.IndexFunc(w.taken, func(t *place) bool { return t.host == crowded && !t.serving })
	if at < 0 { // all of that host are being answered
		at = slices.IndexFunc(w.taken, func(t *place) bool { return !t.serving }) // the newcomer, at the latest
	}
	goes = w.taken[at]
	w.taken = slices.Delete(w.taken, at, at+1)
	return goes
}

// answers notes that a connection's request is being answered, or was.
func (w *places) answers(p *place, serving bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.serving = serving
	if i := slices.Index(w.taken, p); i >= 0 { // else it is to go
		w.taken = append(slices.Delete(w.taken, i, i+1), p)
	}
}

type placeKey struct{}

// context is for http.Server.ConnContext, which is the first to hear of a connection.
func (w *places) context(c context.Context, conn net.Conn) context.Context {
	p := &place{conn: conn, host: hostOf(conn.RemoteAddr())}
	if goes := w.enter(p); goes != nil {
		_ = goes.conn.Close()
	}
	return context.WithValue(c, placeKey{}, p)
}

// state is for http.Server.ConnState.
func (w *places) state(conn net.Conn, now http.ConnState) {
	if now != http.StateClosed && now != http.StateHijacked {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken = slices.DeleteFunc(w.taken, func(t *place) bool { return t.conn == conn })
}

// serving has a handler's answers noted.
func (w *places) serving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if p, ok := r.Context().Value(placeKey{}).(*place); ok {
			w.answers(p, true)
			defer w.answers(p, false)
		}
		next.ServeHTTP(out, r)
	})
}
