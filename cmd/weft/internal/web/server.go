package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	webPatience   = 5 * time.Second // for a request to come; an answer has twice as long
	mostWeb       = 64              // connections
	mostWebOfHost = 16
)

// Server answers HTTP until it is closed.
type Server struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
}

// Serve begins to answer at addr.
func Serve(addr string, handler http.Handler) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	places := &places{most: mostWeb, perHost: mostWebOfHost}
	w := &Server{l, &http.Server{
		Handler: places.serving(handler), ReadHeaderTimeout: webPatience, ReadTimeout: webPatience, WriteTimeout: 2 * webPatience,
		IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10, ConnContext: places.context, ConnState: places.state,
	}, make(chan struct{})}
	go func() {
		defer close(w.ended)
		if err := w.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("weft: HTTP is not served any more", "addr", l.Addr(), "err", err)
		}
	}()
	return w, nil
}

// Addr is the address at which the server answers.
func (w *Server) Addr() net.Addr { return w.listener.Addr() }

// Close waits a moment for who is being answered.
func (w *Server) Close() {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.http.Shutdown(c) != nil {
		_ = w.http.Close()
	}
	<-w.ended
}

// Metrics serves what a collector counts at /metrics, for Prometheus.
func Metrics(collector prometheus.Collector) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}
