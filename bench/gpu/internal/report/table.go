package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/bench/gpu/internal/median"
)

// row is a benchmark in one of its modes; its milliseconds are those of all rounds.
type row struct {
	subject, mode string // the subject is the case and its op
	ms            []float64
	more          string // of its last line
	held          float64
	failed        bool
}

func (r *row) name() string {
	if r.mode == "" {
		return r.subject
	}
	return r.subject + " (" + r.mode + ")"
}

func (r *row) number() string {
	if len(r.ms) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.4g", median.Of(r.ms))
}

// benchTable compares Weft's milliseconds with PyTorch's best; medians over the rounds.
func benchTable(steps []Outcome) string {
	ours, theirs := rowsOf(steps, false), rowsOf(steps, true)
	if len(ours)+len(theirs) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## How fast?\n\nTimes are milliseconds, medians over all rounds; – is one that was not taken. Above 1, PyTorch : Weft says that Weft is faster. " +
		"GiB are those of the GPU's memory: of Weft what it holds in the end, with what it keeps for reuse, of PyTorch the most that tensors had.\n\n")
	b.WriteString(explained(slices.Concat(ours, theirs)))
	b.WriteString("\n| benchmark | Weft, ms | PyTorch's best, ms | PyTorch : Weft | all of PyTorch's, ms | |\n| --- | --- | --- | --- | --- | --- |\n")
	used := map[*row]bool{}
	for _, r := range ours {
		peers := peersOf(r, theirs)
		for _, t := range peers {
			used[t] = true
		}
		best, ratio := "", ""
		if t := fastest(peers); t != nil {
			best = t.number()
			if len(r.ms) > 0 {
				ratio = fmt.Sprintf("%.2f", median.Of(t.ms)/median.Of(r.ms))
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", r.name(), r.number(), best, ratio, variants(peers), r.more)
	}
	for _, t := range theirs {
		if !used[t] {
			fmt.Fprintf(&b, "| %s | | %s | | | %s |\n", t.name(), t.number(), t.more)
		}
	}
	b.WriteString(software(steps))
	return b.String()
}

// peersOf is what a benchmark is compared with: the same in the same mode or, where the two sides'
// modes have nothing in common, in all.
func peersOf(r *row, theirs []*row) (all []*row) {
	var same []*row
	for _, t := range theirs {
		if t.subject == r.subject {
			all = append(all, t)
			if t.mode == r.mode {
				same = append(same, t)
			}
		}
	}
	if same != nil {
		return same
	}
	return all
}

// fastest is the row with the least milliseconds; nil where none has any.
func fastest(rows []*row) (best *row) {
	for _, r := range rows {
		if len(r.ms) > 0 && (best == nil || median.Of(r.ms) < median.Of(best.ms)) {
			best = r
		}
	}
	return best
}

// variants are all rows by their modes, with what went wrong.
func variants(rows []*row) string {
	var out []string
	for _, r := range rows {
		text := strings.TrimSpace(r.mode + " " + r.number())
		if r.held > 0 {
			text += fmt.Sprintf(" (%.3g GiB)", r.held)
		}
		if r.failed {
			text += " " + r.more
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// notMeasured are the lines that are no benchmarks.
var notMeasured = map[string]bool{"device": true, "gpu": true, "python": true, "note": true, "ways": true, "correct": true}

// rowsOf collects the lines of one side, in the order of first sight.
func rowsOf(steps []Outcome, aside bool) (rows []*row) {
	for l := range linesFrom(steps, aside) {
		if notMeasured[fmt.Sprint(l["case"])] {
			continue
		}
		subject, mode := fmt.Sprint(l["case"]), ""
		if op, has := l["op"]; has {
			subject += " " + fmt.Sprint(op)
		}
		if m, has := l["mode"]; has {
			mode = fmt.Sprint(m)
		}
		at := slices.IndexFunc(rows, func(r *row) bool { return r.subject == subject && r.mode == mode })
		if at < 0 {
			at, rows = len(rows), append(rows, &row{subject: subject, mode: mode})
		}
		if ms, has := l["ms"].(float64); has {
			rows[at].ms = append(rows[at].ms, ms)
		}
		rows[at].more, rows[at].failed = figures(l), l["error"] != nil
		rows[at].held, _ = l["held_gib"].(float64)
	}
	return rows
}

// linesFrom is the lines of one side.
func linesFrom(steps []Outcome, aside bool) func(func(map[string]any) bool) {
	return func(yield func(map[string]any) bool) {
		for _, s := range steps {
			for _, l := range s.Lines {
				if s.Aside == aside && !yield(l) {
					return
				}
			}
		}
	}
}

// software says what PyTorch is, and which cuBLASLt each side has loaded; nothing where nobody
// told.
func software(steps []Outcome) string {
	ours, theirs := toldOf(steps, false), toldOf(steps, true)
	var out []string
	for _, of := range [][2]string{{"PyTorch", "torch"}, {"CUDA", "cuda"}, {"cuDNN", "cudnn"}, {"triton", "triton"}, {"attention by", "attention"}} {
		if v := theirs[of[1]]; v != "" {
			out = append(out, of[0]+" "+v)
		}
	}
	switch w, p := ours["cublaslt"], theirs["cublaslt"]; {
	case w == "" && p == "":
	case p == "" && theirs["torch"] == "":
		out = append(out, "cuBLASLt of Weft: "+w)
	case w == p:
		out = append(out, "cuBLASLt of both: "+w)
	default:
		out = append(out, fmt.Sprintf("cuBLASLt of Weft: %s; of PyTorch: %s", cmp.Or(w, "unknown"), cmp.Or(p, "unknown")))
	}
	if out == nil {
		return ""
	}
	return "\n" + strings.Join(out, ". ") + ".\n"
}

// toldOf is what the lines of one side say of its software: the last word counts.
func toldOf(steps []Outcome, aside bool) map[string]string {
	all := map[string]string{}
	for l := range linesFrom(steps, aside) {
		for k, v := range l {
			if text, is := v.(string); is && l["case"] == "device" {
				all[k] = cell(text)
			}
		}
	}
	return all
}
