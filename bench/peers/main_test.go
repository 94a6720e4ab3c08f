package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheTableGivesMediansAndWhetherThePromisesAreKept(t *testing.T) {
	var all samples
	for _, line := range []string{
		"BenchmarkCall/lane=local/empty-2 \t 100\t 20000 ns/op\t 20 p50-µs\t 30 p99-µs",
		"BenchmarkCall/lane=local/empty-2 \t 100\t 20000 ns/op\t 90 p50-µs\t 30 p99-µs",
		"BenchmarkCall/lane=local/empty-2 \t 100\t 20000 ns/op\t 25 p50-µs\t 30 p99-µs",
		"BenchmarkCall/lane=torch-default/empty\t10\t1 ns/op\t180 p50-µs",
		"BenchmarkTensor/lane=bulk/bytes=16MiB-2\t10\t1 ns/op\t1.0 GB/s",
		"BenchmarkTLS/bytes=16MiB-2\t10\t1 ns/op\t2.0 GB/s\t0.5 bulk/TLS",
		"BenchmarkStore/lane=weft/add/clients=16\t24000\t1 ns/op\t90000 ops/s",
		"BenchmarkStore/lane=torch/add/clients=16\t24000\t1 ns/op\t30000 ops/s",
		"BenchmarkStore/lane=weft/wake/connections=10000\t1\t1 ns/op\t1500 ms",
		"BenchmarkElastic/lane=weft/replace/agents=2/nnodes=1:2\t1\t40000000 ns/op\t40 ms",
		"BenchmarkElastic/lane=torchrun/replace/agents=2/nnodes=1:2\t1\t2000000000 ns/op\t2000 ms",
		"ok  \tsomething 1.2s", "--- BENCH: BenchmarkTLS", "",
	} {
		all.line(line)
	}
	mid, least, most, n := all.median("Call/empty", "local", "p50-µs")
	require.Equal(t, []float64{25, 20, 90, 3}, []float64{mid, least, most, float64(n)})
	var out bytes.Buffer
	all.table(&out)
	require.Regexp(t, `local Call/empty +torch-default Call/empty +0.139 +at most 0.167 +yes`, out.String())
	require.Regexp(t, `bulk Tensor/bytes=16MiB +go-tls Tensor/bytes=16MiB +0.5 +at least 0.8 +NO`, out.String())
	require.Regexp(t, `Call/empty +p50-µs +local +25 +20..90 +3 +7.20× as good`, out.String())
	require.Regexp(t, `Store/add/clients=16 +ops/s +weft +9e\+04 +9e\+04..9e\+04 +1 +3.00× as good`, out.String())
	require.Regexp(t, `weft Store/add/clients=16 +torch Store/add/clients=16 +3 +at least 2 +yes`, out.String())
	require.Regexp(t, `weft Store/wake/connections=10000 +ms +1.5e\+03 +at most 1e\+03 +NO`, out.String())
	require.Regexp(t, `Elastic/replace/agents=2/nnodes=1:2 +ms +weft +40 +40..40 +1 +50.00× as good`, out.String())
}
