package program

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weft-project/weft/kernels"
)

// Explain prints what the program does, an instruction per line: what was fused into it, what it
// reads and makes, and an estimate of its work. Then the totals, and the memory of a run.
func (p *Program) Explain(w io.Writer) error {
	if err := p.unit.explain(w, p.noter); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, p.memory())
	return err
}

// Explain prints the unit as [Program.Explain] does, without the memory, and what a backend says.
func (u *Unit) Explain(w io.Writer) error { return u.explain(w, nil) }

func (u *Unit) explain(w io.Writer, noter kernels.Noter) error {
	fmt.Fprintf(w, "%s\n", u.Name)
	var total kernels.Cost
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  instruction\treads\tmakes\tflops\tbytes\n")
	reshapes := 0
	makers := u.Makers()
	for _, i := range u.Insts {
		if alias(i) {
			reshapes++
			continue
		}
		c := u.cost(i)
		total = total.Plus(c)
		name := describe(i.Instr)
		if noter != nil {
			name = strings.TrimSpace(name + " " + noter.Note(i.Instr, u.typesOf(i.In)))
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", name, u.sources(makers, i.In), u.names(i.Out, true), inUnits(c.Flops), inBytes(c.Bytes))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	free := ""
	if reshapes > 0 {
		free = fmt.Sprintf(", %d reshapes for nothing", reshapes)
	}
	_, err := fmt.Fprintf(w, "given %s; results %s\n%d instructions%s, %s flops, %s read and written\n",
		u.names(u.Given, true), u.names(u.Results, false), len(u.Insts)-reshapes, free, inUnits(total.Flops), inBytes(total.Bytes))
	return err
}

// Results names the results but for the first n, as Explain does, with their types.
func (p *Program) Results(n int) string { return p.unit.names(p.unit.Results[n:], true) }

func (u *Unit) cost(i Inst) kernels.Cost {
	return kernels.CostOf(i.Instr, u.typesOf(i.In), u.typesOf(i.Out))
}

// names lists values, perhaps with their types.
func (u *Unit) names(vs []Value, types bool) string {
	names := make([]string, len(vs))
	for k, v := range vs {
		names[k] = fmt.Sprintf("%%%d", v)
		if types {
			names[k] += fmt.Sprintf(" %v", u.Types[v])
		}
	}
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

// sources lists what an instruction reads, reshapes by what they reshape.
func (u *Unit) sources(makers []int, vs []Value) string {
	names := make([]string, len(vs))
	for k, v := range vs {
		at := v
		for makers[at] >= 0 && alias(u.Insts[makers[at]]) {
			at = u.Insts[makers[at]].In[0]
		}
		names[k] = fmt.Sprintf("%%%d", at)
		if at != v {
			names[k] += fmt.Sprintf(" as %v", u.Types[v].Shape)
		}
	}
	return strings.Join(names, ", ")
}

// describe names an instruction by the ops that it was made of.
func describe(i kernels.Instr) string {
	switch i := i.(type) {
	case kernels.MatMul:
		return product(i)
	case kernels.Map:
		return parts(i)
	case kernels.MatMulThen:
		return product(i.MatMul) + " + " + parts(i.Then)
	case kernels.Viewed:
		var by []string
		for k, v := range i.In {
			if v != nil {
				by = append(by, fmt.Sprint(k+1))
			}
		}
		return fmt.Sprintf("%s (%s by view)", describe(i.Of), strings.Join(by, ", "))
	case kernels.Narrow:
		return describe(i.Of)
	case kernels.Reduce:
		return reduction(i)
	}
	return i.String()
}

func product(i kernels.MatMul) string {
	side := func(name string, trans bool) string {
		if trans {
			return name + "ᵀ"
		}
		return name
	}
	return "MatMul " + side("a", i.TransA) + "·" + side("b", i.TransB)
}

// parts lists the steps and folds of a map, in order.
func parts(i kernels.Map) string {
	var names []string
	for _, s := range i.Steps {
		names = append(names, s.Op.String())
	}
	for _, o := range i.Outs {
		if o.Fold != nil {
			names = append(names, reduction(*o.Fold))
		}
	}
	if len(names) == 0 {
		return "copy"
	}
	return strings.Join(names, " + ")
}

func reduction(i kernels.Reduce) string {
	if i.Axes == nil {
		return i.Fn.String()
	}
	return fmt.Sprint(i.Fn, i.Axes)
}

// inUnits prints a number in thousands, millions, ….
func inUnits(n int) string { return scaled(n, 1000, "", "k", "M", "G", "T", "P") }

// inBytes prints a number of bytes.
func inBytes(n int) string { return scaled(n, 1024, " B", " KiB", " MiB", " GiB", " TiB", " PiB") }

func scaled(n int, step float64, units ...string) string {
	v := float64(n)
	for v >= step && len(units) > 1 {
		v, units = v/step, units[1:]
	}
	if v == float64(n) || v >= 100 {
		return fmt.Sprintf("%.0f%s", v, units[0])
	}
	return fmt.Sprintf("%.1f%s", v, units[0])
}
