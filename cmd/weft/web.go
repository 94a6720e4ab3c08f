package main

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

// webServer answers HTTP until it is closed.
type webServer struct {
	listener net.Listener
	http     *http.Server
	ended    chan struct{}
}

func serveWeb(addr string, handler http.Handler) (*webServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	w := &webServer{l, &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, make(chan struct{})}
	go func() {
		defer close(w.ended)
		if err := w.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("weft: HTTP is not served any more", "addr", l.Addr(), "err", err)
		}
	}()
	return w, nil
}

func (w *webServer) addr() net.Addr { return w.listener.Addr() }

// close waits a moment for who is being answered.
func (w *webServer) close() {
	c, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.http.Shutdown(c) != nil {
		_ = w.http.Close()
	}
	<-w.ended
}

// metricsOf serves what a collector counts at /metrics, for Prometheus.
func metricsOf(collector prometheus.Collector) *http.ServeMux {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}
