package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weft-project/weft/internal/printable"
)

// Markdown is the result as a page.
func (r Result) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s, %s\n\n**%s**", r.title(), r.Date[:10], r.headline())
	r.tally(&b)
	fmt.Fprintf(&b, "\n\nWeft at %s. `%s`\n\n", r.Commit, r.Command)
	r.GPU.describe(&b)
	b.WriteString(python(r.Python))
	for _, text := range r.Notes {
		fmt.Fprintf(&b, "- **%s**\n", cell(text))
	}
	if len(r.Steps) > 0 {
		b.WriteString("\n| step, with its round | verdict | seconds | why |\n| --- | --- | --- | --- |\n")
	}
	for _, s := range r.Steps {
		why := s.Why
		if s.Verdict != OK {
			why += " " + s.Shown()
		}
		name := s.Name
		if s.Experiment {
			name += " (an experiment)"
		}
		fmt.Fprintf(&b, "| %s | %s | %.1f | %s |\n", name, s.Verdict, s.Seconds, cell(why))
	}
	b.WriteString(rightTable(r.Steps) + benchTable(r.Steps) + waysList(r.Steps))
	for _, s := range r.Steps {
		if text := s.Shown(); text != "" {
			fmt.Fprintf(&b, "\n## What %s printed\n\n%s\n", s.Name, Indented(text))
		}
	}
	return b.String()
}

// title says what was checked.
func (r Result) title() string {
	switch {
	case r.NoGPU != "":
		return "gpucheck: no GPU to check"
	case r.GPU == nil:
		return "gpucheck on an unknown GPU"
	}
	return "gpucheck on " + printable.Text(r.GPU.Name, 100)
}

// headline says how it went.
func (r Result) headline() string {
	text := r.State
	switch {
	case r.NoGPU != "" && r.State == Complete:
		return "No GPU to check: " + printable.Text(r.NoGPU, 1000)
	case r.State == Complete && r.Green:
		text += ", and all is well" + r.experiments()
	case r.State == Complete:
		text += ", and not all is well"
	}
	return printable.Text(text, 1000)
}

// experiments says which of them went wrong.
func (r Result) experiments() string {
	var names []string
	for _, s := range r.Steps {
		if s.Experiment && s.Verdict != OK && s.Verdict != LeftOut {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " but for experiments: " + strings.Join(names, ", ")
}

// tally counts the steps.
func (r Result) tally(b *strings.Builder) {
	if len(r.Steps) == 0 {
		return
	}
	fmt.Fprintf(b, ": %d of %d steps in %.0f s", len(r.Steps)-r.countVerdicts(Waiting)-r.countVerdicts(Running), len(r.Steps), r.Seconds)
	for _, verdict := range []string{OK, Failed, Late, LeftOut, Interrupted, Running, Waiting} {
		if n := r.countVerdicts(verdict); n > 0 {
			fmt.Fprintf(b, ", %d %s", n, verdict)
		}
	}
	b.WriteString(".")
}

// python says what Python has. What it lacks is null or empty.
func python(p map[string]any) string {
	if p == nil {
		return ""
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(p)) {
		switch text := cell(fmt.Sprint(p[key])); {
		case key == "case":
		case key == "error":
			out = append(out, NoTorch+" ("+text+")")
		case p[key] == nil || text == "":
			out = append(out, "no "+key)
		default:
			out = append(out, key+" "+text)
		}
	}
	return "Python: " + strings.Join(out, ", ") + ".\n\n"
}

// progress begins a line that says what a step does next, and is of no interest once that is done.
const progress = "… "

// Shown is what a page shows of the output: of a step that ended well not what all such steps
// print, and not why there is no GPU, which its head says.
func (o Outcome) Shown() string {
	if slices.ContainsFunc(o.Lines, Missing) {
		return ""
	}
	if o.Verdict != OK {
		return o.Output
	}
	var kept strings.Builder
	for line := range strings.Lines(o.Output) {
		if text := strings.TrimSpace(line); text != AllDone && text != "PASS" && !strings.HasPrefix(text, progress) {
			kept.WriteString(line)
		}
	}
	return strings.TrimSpace(kept.String())
}

// countVerdicts is how many steps have a verdict.
func (r Result) countVerdicts(verdict string) (n int) {
	for _, s := range r.Steps {
		if s.Verdict == verdict {
			n++
		}
	}
	return n
}

// describe says what the GPU is.
func (r *GPU) describe(b *strings.Builder) {
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
