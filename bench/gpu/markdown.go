package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// markdown is the result as a page.
func (r result) markdown() string {
	var b strings.Builder
	g := r.GPU
	fmt.Fprintf(&b, "# gpucheck on %s, %s\n\n", g.Name, r.Date[:10])
	fmt.Fprintf(&b, "Compute capability %d.%d, %.1f GiB, %d multiprocessors, driver for CUDA %d.%d; cuBLASLt: %s. Host: %s. Weft at %s. `%s` took %.0f s.\n\n",
		g.Arch/10, g.Arch%10, float64(g.Memory)/(1<<30), g.Processors, g.Driver/1000, g.Driver%1000/10, g.Library, g.Host, r.Commit, r.Command, r.Seconds)
	fmt.Fprint(&b, "Loading each module of kernels:")
	for k, name := range slices.Sorted(maps.Keys(g.LoadMS)) {
		fmt.Fprintf(&b, "%s %s %.0f ms", strings.Repeat(",", min(k, 1)), name, g.LoadMS[name])
		if why := g.LoadErrors[name]; why != "" {
			fmt.Fprintf(&b, " (**%s**)", cell(why))
		}
	}
	fmt.Fprint(&b, ".\n\n| step | verdict | seconds | |\n| --- | --- | --- | --- |\n")
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", s.Name, s.Verdict, s.Seconds, cell(s.Why))
	}
	b.WriteString(benchTable(r.Steps))
	return b.String()
}

// cell is a text as one cell of a table, cut where it is long.
func cell(s string) string {
	s = strings.Join(strings.Fields(strings.ReplaceAll(s, "|", "\\|")), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + " …"
	}
	return s
}

// row is a benchmark of Weft's and what PyTorch took for it.
type row struct {
	name string
	ms   []float64
	more string // of its last line
}

// benchTable compares Weft's milliseconds with PyTorch's, by case and op; medians over the rounds.
func benchTable(steps []outcome) string {
	ours, theirs := rowsOf(steps, false), rowsOf(steps, true)
	if len(ours)+len(theirs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n| benchmark | Weft, ms | PyTorch, ms | PyTorch : Weft | |\n| --- | --- | --- | --- | --- |\n")
	used := map[string]bool{}
	for _, r := range ours {
		matched := false
		for _, t := range theirs {
			if subject(t.name) == subject(r.name) {
				used[t.name], matched = true, true
				ratio := ""
				if len(r.ms) > 0 && len(t.ms) > 0 {
					ratio = fmt.Sprintf("%.2f", middle(t.ms)/middle(r.ms))
				}
				fmt.Fprintf(&b, "| %s against %s | %s | %s | %s | %s |\n", r.name, mode(t.name), number(r.ms), number(t.ms), ratio, r.more)
			}
		}
		if !matched {
			fmt.Fprintf(&b, "| %s | %s | | | %s |\n", r.name, number(r.ms), r.more)
		}
	}
	for _, t := range theirs {
		if !used[t.name] {
			fmt.Fprintf(&b, "| %s | | %s | | %s |\n", t.name, number(t.ms), t.more)
		}
	}
	return b.String()
}

// A row is called "case op (mode)"; the subject is without the mode.
func subject(name string) string { s, _, _ := strings.Cut(name, " ("); return s }

func mode(name string) string {
	_, m, found := strings.Cut(name, " (")
	if !found {
		return "PyTorch"
	}
	return strings.TrimSuffix(m, ")")
}

func number(ms []float64) string {
	if len(ms) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g", middle(ms))
}

// rowsOf collects the lines of one side, in the order of first sight.
func rowsOf(steps []outcome, aside bool) (rows []*row) {
	for _, s := range steps {
		if s.Aside != aside {
			continue
		}
		for _, l := range s.Lines {
			if l["case"] == "device" {
				continue
			}
			name := fmt.Sprint(l["case"])
			if op, has := l["op"]; has {
				name += " " + fmt.Sprint(op)
			}
			if m, has := l["mode"]; has {
				name += fmt.Sprintf(" (%v)", m)
			}
			at := slices.IndexFunc(rows, func(r *row) bool { return r.name == name })
			if at < 0 {
				at, rows = len(rows), append(rows, &row{name: name})
			}
			if ms, has := l["ms"].(float64); has {
				rows[at].ms = append(rows[at].ms, ms)
			}
			rows[at].more = figures(l)
		}
	}
	return rows
}

// figures are what a line says beside milliseconds.
func figures(l map[string]any) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(l)) {
		switch v := l[k].(type) {
		case float64:
			if k != "ms" {
				out = append(out, fmt.Sprintf("%s %.4g", strings.ReplaceAll(k, "_", " "), v))
			}
		case string:
			if k == "error" {
				out = append(out, "**"+cell(v)+"**")
			}
		}
	}
	return strings.Join(out, ", ")
}
