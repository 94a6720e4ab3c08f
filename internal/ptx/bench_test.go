package ptx

import "testing"

// BenchmarkMatmul tells how many instructions of a warp are done in a second, in a kernel with
// shared memory, barriers and f32 arithmetic.
func BenchmarkMatmul(b *testing.B) {
	r := newRig(b, Config{}, texts(b)["basic"])
	const n = 128
	x := normal(n*n, 1)
	px, py := up(r, x), up(r, x)
	before := r.m.Steps()
	for b.Loop() {
		if err := r.launch3("matmul", [3]uint32{n / 16, n / 16, 1}, [3]uint32{16, 16, 1}, 0, px, px, py, n, n, n); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.m.Steps()-before)/b.Elapsed().Seconds()/1e6, "Minstr/s")
}

// BenchmarkSoftmax has transcendental functions, shuffles and loops.
func BenchmarkSoftmax(b *testing.B) {
	r := newRig(b, Config{}, texts(b)["basic"])
	const rows, cols = 64, 1000
	x := normal(rows*cols, 1)
	px, py := up(r, x), up(r, x)
	before := r.m.Steps()
	for b.Loop() {
		if err := r.launch("softmax", rows, 256, 0, px, py, cols); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(r.m.Steps()-before)/b.Elapsed().Seconds()/1e6, "Minstr/s")
}
