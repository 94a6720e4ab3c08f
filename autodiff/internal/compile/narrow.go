package compile

import (
	"gorgonia.org/gorgonia"

	"github.com/weft-project/weft/autodiff/internal/expr"
	"github.com/weft-project/weft/autodiff/internal/program"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// roundOnce has the forward save what it makes as bfloat16 anyway in place of what that is made of:
// parameters, and inputs that want no gradient, such as a batch. Somebody has a batch while the
// call waits, so that its copy is more to hold: it is saved where other values, as bfloat16, save
// as much.
func (c *Function) roundOnce(s *saving, factor map[*gorgonia.Node]bool) {
	spared := 0
	for k, n := range c.kept {
		if c.narrow[k] {
			spared += s.bytes(n) / 2
		}
	}
	reads := c.Reads
	c.Reads = nil
	for _, i := range reads {
		n := c.in[i]
		switch more := s.bytes(n) / 2; {
		case c.Params[i] && factor[n]:
			c.Factors = append(c.Factors, i)
		case !c.Need[i] && factor[n] && more <= spared:
			spared -= more
			c.kept, c.narrow = append(c.kept, n), append(c.narrow, true)
		default:
			c.Reads = append(c.Reads, i)
		}
	}
	for _, i := range c.Factors {
		c.kept, c.narrow = append(c.kept, c.in[i]), append(c.narrow, true)
	}
}

// narrow says which of the kept values are kept as bfloat16: those that [kernels.Rounding] says, of
// who makes them and of all who read them, and longer rows that products alone read. Results stay
// as they are.
func (s *saving) narrow(forward, kept []*gorgonia.Node) []bool {
	no, otherwise := map[*gorgonia.Node]bool{}, map[*gorgonia.Node]bool{}
	for k := len(forward) - 1; k >= 0; k-- { // readers come after what they read
		n := forward[k]
		op, ok := n.Op().(*expr.Op)
		if !ok {
			continue
		}
		for j, x := range s.g.Operands(n) {
			otherwise[x] = otherwise[x] || !kernels.RoundingOf(op.Instr).Factors
			switch is := kernels.RoundingOf(op.Instr); {
			case is.Moves:
				no[x] = no[x] || no[n]
			case is.Sums:
				no[x] = no[x] || s.bytes(x) == s.bytes(n)
			default:
				no[x] = no[x] || !is.Keeps(j)
			}
		}
	}
	out := make([]bool, len(kept))
	for k, n := range kept {
		op, ok := n.Op().(*expr.Op)
		if !ok || no[n] || s.fixed[n] || s.g.IsGradient(n) || s.g.Type(n).Dtype != device.Float32 {
			continue
		}
		_, longer := op.Instr.(kernels.Pad)
		out[k] = op.Result == 0 && kernels.RoundingOf(op.Instr).Result || longer && !otherwise[n]
	}
	return out
}

// factors are the inputs of float32 that products read, and nothing else of the forward and of the
// backward.
func (s *saving) factors(in, out []*gorgonia.Node, before int, gin, gout []*gorgonia.Node) map[*gorgonia.Node]bool {
	given := map[*gorgonia.Node]program.Value{}
	for n := range s.keep {
		given[n] = 0
	}
	for _, ns := range [2][]*gorgonia.Node{in, gin} {
		for _, n := range ns {
			given[n] = 0 // also nil
		}
	}
	back := s.g.Reachable(given, gout)
	factor, otherwise := map[*gorgonia.Node]bool{}, map[*gorgonia.Node]bool{}
	for _, ns := range [2][]*gorgonia.Node{out, gout} { // a result may be an input itself
		for _, n := range ns {
			otherwise[n] = true
		}
	}
	for k := len(s.g.Nodes()) - 1; k >= 0; k-- { // readers come after what they read
		n := s.g.Nodes()[k]
		op, ok := n.Op().(*expr.Op)
		if !ok || k >= before && !back[n] {
			continue
		}
		for _, x := range s.g.Operands(n) {
			switch {
			case kernels.RoundingOf(op.Instr).Factors:
				factor[x] = factor[x] || k < before
			case isReorder(op.Instr):
				factor[x], otherwise[x] = factor[x] || factor[n], otherwise[x] || otherwise[n]
			default:
				otherwise[x] = true
			}
		}
	}
	for n := range factor {
		factor[n] = factor[n] && !otherwise[n] && s.g.Type(n).Dtype == device.Float32
	}
	return factor
}
