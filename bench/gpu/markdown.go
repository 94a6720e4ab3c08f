package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-project/weft/internal/printable"
)

// markdown is the result as a page.
func (r result) markdown() string {
	var b strings.Builder
	name := "an unknown GPU"
	if r.GPU != nil {
		name = r.GPU.Name
	}
	done := len(slices.DeleteFunc(slices.Clone(r.Steps), func(s outcome) bool { return s.Verdict == waiting || s.Verdict == running }))
	fmt.Fprintf(&b, "# gpucheck on %s, %s\n\n", printable.Text(name, 100), r.Date[:10])
	fmt.Fprintf(&b, "Weft at %s. `%s`: **%s**, %d of %d steps in %.0f s", r.Commit, r.Command, r.State, done, len(r.Steps), r.Seconds)
	for _, verdict := range []string{ok, failed, late, leftOut, interrupted, running, waiting} {
		if n := r.count(verdict); n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, verdict)
		}
	}
	b.WriteString(".\n\n")
	r.GPU.describe(&b)
	if p := r.Python; p != nil {
		fmt.Fprint(&b, "Python:")
		for k, key := range slices.Sorted(maps.Keys(p)) {
			if key != "case" {
				fmt.Fprintf(&b, "%s %s %s", strings.Repeat(",", min(k-1, 1)), key, cell(fmt.Sprint(p[key])))
			}
		}
		b.WriteString(".\n\n")
	}
	for _, text := range r.Notes {
		fmt.Fprintf(&b, "- **%s**\n", cell(text))
	}
	b.WriteString("\n| step | verdict | seconds | |\n| --- | --- | --- | --- |\n")
	for _, s := range r.Steps {
		why := s.Why
		if s.Verdict != ok {
			why += " " + s.Output
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", s.Name, s.Verdict, s.Seconds, cell(why))
	}
	b.WriteString(benchTable(r.Steps))
	for _, s := range r.Steps {
		if s.Output != "" {
			fmt.Fprintf(&b, "\n## What %s printed\n\n%s\n", s.Name, indented(s.Output))
		}
	}
	return b.String()
}

// count is how many steps have a verdict.
func (r result) count(verdict string) (n int) {
	for _, s := range r.Steps {
		if s.Verdict == verdict {
			n++
		}
	}
	return n
}

// describe says what the GPU is.
func (r *gpuReport) describe(b *strings.Builder) {
	if r == nil {
		return
	}
	fmt.Fprintf(b, "%s: compute capability %d.%d, %.1f GiB, %d multiprocessors, driver for CUDA %d.%d; cuBLASLt: %s. Host: %s.\n\n",
		printable.Text(r.UUID, 100), r.Arch/10, r.Arch%10, float64(r.Memory)/(1<<30), r.Processors, r.Driver/1000, r.Driver%1000/10, cmp.Or(r.Library, "unknown"), r.Host)
	if len(r.LoadMS) == 0 {
		return
	}
	b.WriteString("Loading each module of kernels:")
	for k, name := range slices.Sorted(maps.Keys(r.LoadMS)) {
		fmt.Fprintf(b, "%s %s %.0f ms", strings.Repeat(",", min(k, 1)), name, r.LoadMS[name])
		if why := r.LoadErrors[name]; why != "" {
			fmt.Fprintf(b, " (**%s**)", cell(why))
		}
	}
	b.WriteString(".\n\n")
}

// cell is a text as one cell of a table, cut where it is long.
func cell(s string) string {
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, "|", "\\|")), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return s
}
