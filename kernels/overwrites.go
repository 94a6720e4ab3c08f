package kernels

// Overwrites says whether a result of an instruction may be written over an operand: they have one
// type then, and the instruction has read an element before it writes it. A memory planner asks
// this; [Kernel.Run] and routines hold to it.
func Overwrites(i Instr, in []Type, result, operand int) bool {
	out, err := i.Infer(in)
	return err == nil && overwrites(i, in, out, result, operand)
}

// overwriter is an instruction that may write a result over an operand; the others never may.
type overwriter interface {
	overwrites(in, out []Type, result, operand int) bool
}

func overwrites(i Instr, in, out []Type, result, operand int) bool {
	of, ok := i.(overwriter)
	return ok && of.overwrites(in, out, result, operand)
}
