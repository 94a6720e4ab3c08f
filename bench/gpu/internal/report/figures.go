package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// inWords are figures of lines, beside milliseconds, in the order in which they are told.
var inWords = []struct{ key, text string }{
	{"gbps", "%.4g GB/s"},
	{"of_copy", "%.2f of copy's GB/s"},
	{"tflops", "%.4g TFLOP/s"},
	{"tokens_per_s", "%.4g tokens/s"},
	{"held_gib", "%.3g GiB held"},
	{"host_us", "%.4g µs of the host's time"},
	{"of_one_process", "%.2f of the speed of one process"},
	{"off", "losses off by %.2g"},
	{"off_allowed", "%.2g allowed"},
	{"around_lane_cuda", "messages around lane cuda: %.0f"},
}

// figures are what a line says beside milliseconds.
func figures(l map[string]any) string {
	var out []string
	rest := maps.Clone(l)
	delete(rest, "ms")
	for _, w := range inWords {
		if v, is := l[w.key].(float64); is {
			out = append(out, fmt.Sprintf(w.text, v))
			delete(rest, w.key)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(rest)) {
		switch v := rest[k].(type) {
		case float64:
			out = append(out, fmt.Sprintf("%s %.4g", inPlain(k), v))
		case map[string]any:
			out = append(out, inPlain(k)+": "+counts(v))
		}
	}
	if e, is := l["error"].(string); is {
		out = append(out, "**"+cell(e)+"**")
	}
	return strings.Join(out, ", ")
}

// inPlain is a key of JSON as words.
func inPlain(key string) string { return strings.ReplaceAll(key, "_", " ") }

// counts are the numbers of a map that are not 0.
func counts(of map[string]any) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		if v, is := of[k].(float64); is && v != 0 {
			out = append(out, fmt.Sprintf("%s %.0f", k, v))
		}
	}
	return strings.Join(out, ", ")
}

// legend are the benchmarks, by how their names begin.
var legend = []struct{ name, text string }{
	{"copy", "a copy within the GPU's memory"},
	{"bound", "an op that waits for memory alone, and how its bandwidth compares with that of copy"},
	{"product", "a product of two square matrices, computed in float32, TF32 or bfloat16"},
	{"mlp", "a step of training of a network of dense layers, compiled as one function"},
	{"gpt2", "a step of training of a GPT-2, compiled as one function"},
	{"attention", "a layer of GPT-2's attention alone, of bfloat16; wide heads are half as many; wgmma is what programs ask for by gpu.Config.Hopper"},
	{"launch", "what an instruction costs beside its work: recorded in a graph, and in a list of launches"},
	{"split", "a step of training in one process, and with the network cut in two between two processes on the same GPU, whose losses are to be those of one; " +
		"a message around lane cuda had a tensor of the GPU, and another lane carried it"},
}

// explained says what the benchmarks are that have rows.
func explained(rows []*row) string {
	var b strings.Builder
	for _, k := range legend {
		if slices.ContainsFunc(rows, func(r *row) bool { return strings.HasPrefix(r.subject, k.name) }) {
			fmt.Fprintf(&b, "- %s: %s.\n", k.name, k.text)
		}
	}
	return b.String()
}

// rightTable says how far models are from what the CPU says; nothing where no step has compared
// any.
func rightTable(steps []Outcome) string {
	var b strings.Builder
	number := func(l map[string]any, key string) string {
		if v, is := l[key].(float64); is {
			return fmt.Sprintf("%.2g", v)
		}
		return "–"
	}
	text := func(v any) string {
		s, _ := v.(string)
		return cell(s)
	}
	for l := range linesFrom(steps, false) {
		if l["case"] != "correct" {
			continue
		}
		if b.Len() == 0 {
			b.WriteString("\n## Is it right?\n\nSmall networks, their products computed in float32, TF32 or bfloat16. How far their gradients are off from the CPU's in float64 is " +
				"a share of a gradient's length, for the worst parameter; how far the losses of some steps are off from the CPU's is a share of a loss.\n\n" +
				"| network | products in | gradients off | allowed | losses off | allowed | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
		}
		wrong := ""
		if l["error"] != nil {
			wrong = "**" + text(l["error"]) + "**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", text(l["op"]), text(l["mode"]),
			number(l, "gradients_off"), number(l, "gradients_allowed"), number(l, "off"), number(l, "off_allowed"), wrong)
	}
	return b.String()
}

// waysList says by what products and graphs were made, how often, and in which cases; nothing where
// nobody has counted.
func waysList(steps []Outcome) string {
	times, where := map[string]float64{}, map[string][]string{}
	for l := range linesFrom(steps, false) {
		if l["case"] != "ways" {
			continue
		}
		for way, n := range l {
			if n, is := n.(float64); is {
				times[way] += n
				if name := fmt.Sprint(l["op"]); !slices.Contains(where[way], name) {
					where[way] = append(where[way], name)
				}
			}
		}
	}
	if len(times) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n## By what products and graphs were made\n\n")
	for _, way := range slices.Sorted(maps.Keys(times)) {
		fmt.Fprintf(&b, "- %s: %.0f (%s)\n", cell(way), times[way], cell(strings.Join(where[way], ", ")))
	}
	return b.String()
}
