package main

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/leak"
)

// TestMain makes the test binary one of the processes that are measured, where it is asked to.
func TestMain(m *testing.M) {
	if role, ok := os.LookupEnv(roleVariable); ok {
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func few(out *bytes.Buffer) *bench {
	return &bench{out: out, lane: "weft", sizes: sizes{
		trips: 6, adds: 8, gets: 8, clients: []int{1, 2}, connections: 20, keys: 2500, stalled: 3, turns: 1,
	}}
}

func TestEachPartPrintsTheLinesThatItPromises(t *testing.T) {
	leak.Check(t)
	t.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector makes every exit take a second otherwise
	var out bytes.Buffer
	require.NoError(t, few(&out).run(t.Context(), ""))
	for _, want := range []string{
		`lane=weft/add\t6\t\d+ ns/op\t[\d.]+ p50-µs`, `lane=weft/set\+get\t4\t`, `lane=weft/get\t6\t`, `lane=weft/compare_set\t6\t`, `lane=weft/wait\t6\t`,
		`lane=weft/add/clients=1\t8\t\d+ ns/op\t[\de+.]+ ops/s`, `lane=weft/add/clients=2\t8\t`, `lane=weft/get/clients=2\t8\t`,
		`lane=echo/add\t6\t`, `lane=echo/add/clients=2\t8\t`,
		`lane=weft/wake/connections=20\t1\t\d+ ns/op\t[\d.]+ ms`,
		`lane=weft/multi_get/keys=2500\t1\t`,
		`lane=weft/add/over=tcp\t6\t`, `lane=weft/add/over=tls\t6\t`, `lane=weft/add/over=unix\t6\t`, `lane=weft/dial/over=tcp\t2\t`, `lane=weft/dial/over=tls\t2\t`,
		`lane=weft/tls-add/silent=0\t6\t`, `lane=weft/tls-add/silent=20\t6\t`, `lane=weft/tls-dial/silent=20\t2\t`,
		`lane=weft/add/stalled=0\t6\t`, `lane=weft/add/stalled=3\t6\t`,
	} {
		require.Regexp(t, `(?m)^BenchmarkStore/`+want, out.String())
	}
}

func TestAServerThatRunsAlreadyIsMeasured(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	server, err := start(t.Context(), "serve")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.stop()) }()
	var out bytes.Buffer
	b := few(&out)
	b.server, b.lane = server.addr, "there"
	require.NoError(t, b.run(t.Context(), "round"))
	require.Contains(t, out.String(), "BenchmarkStore/lane=there/add\t")
	s, err := dial(t.Context(), server.addr)
	require.NoError(t, err)
	defer s.Close()
	n, err := s.Add(t.Context(), "n", 0)
	require.NoError(t, err)
	require.Equal(t, int64(56), n, "the adds came here")
}

func TestAnUnknownPartIsRefused(t *testing.T) {
	require.ErrorContains(t, few(nil).run(t.Context(), "round,fast"), `got "fast"`)
}
