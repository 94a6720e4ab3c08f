package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sizes are how often and how many; the defaults are those of bench/torch/store.py.
type sizes struct {
	trips       int // of each kind of round trip; half as many of set and get
	adds, gets  int // by all clients together
	clients     []int
	connections int // that wait on one key, or say nothing
	keys        int // that one client waits on
	stalled     int // clients with half a command
	turns       int // with and without them
}

var usual = sizes{trips: 3000, adds: 24000, gets: 16000, clients: []int{1, 4, 16}, connections: 10_000, keys: 100_000, stalled: 100, turns: 5}

// bench is one run of the program.
type bench struct {
	sizes
	out    io.Writer
	server string // measured instead of one of our own
	lane   string // the column of the results
}

func main() {
	if role, ok := os.LookupEnv(roleVariable); ok {
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	b := bench{sizes: usual, out: os.Stdout}
	only := flag.String("only", "", "some of "+strings.Join(names(), ",")+"; empty: all")
	flag.StringVar(&b.server, "server", "", "HOST:PORT of a server to measure in place of one of our own")
	flag.StringVar(&b.lane, "lane", "weft", "what the results are called")
	flag.IntVar(&b.connections, "connections", usual.connections, "how many wait on one key, or say nothing")
	flag.Parse()
	c, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(c, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench/store:", err)
		os.Exit(1)
	}
}

// part is one thing to measure, with a server that did nothing before.
type part struct {
	name    string
	role    string // of the server
	measure func(*bench, context.Context, *process) error
}

func parts() []part {
	return []part{
		{"round", "serve", (*bench).roundTrips},
		{"rate", "serve", (*bench).rates},
		{"echo", "echo", (*bench).echoes},
		{"wake", "serve", (*bench).wake},
		{"stall", "serve", (*bench).stall},
		{"keys", "serve", (*bench).manyKeys},
		{"ways", "serve", (*bench).ways},
		{"silent", "serve", (*bench).besideSilent},
	}
}

func names() []string {
	var all []string
	for _, p := range parts() {
		all = append(all, p.name)
	}
	return all
}

func (b *bench) run(c context.Context, only string) error {
	var wanted []string
	if only != "" {
		wanted = strings.Split(only, ",")
	}
	for _, w := range wanted {
		if !slices.Contains(names(), w) {
			return fmt.Errorf("-only: expected some of %v, got %q", names(), w)
		}
	}
	for _, p := range parts() {
		if wanted != nil && !slices.Contains(wanted, p.name) {
			continue
		}
		if err := b.runPart(c, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func (b *bench) runPart(c context.Context, p part) (err error) {
	server := &process{addr: b.server}
	if b.server == "" || p.role != "serve" {
		if server, err = start(c, p.role); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, server.stop()) }()
	}
	return p.measure(b, c, server)
}

// emit prints a line in the format of Go's benchmarks.
func (b *bench) emit(lane, name string, n int, took time.Duration, value float64, unit string) {
	fmt.Fprintf(b.out, "BenchmarkStore/lane=%s/%s\t%d\t%d ns/op\t%.6g %s\n", lane, name, n, took.Nanoseconds()/int64(n), value, unit)
}
