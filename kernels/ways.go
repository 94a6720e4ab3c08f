package kernels

// Way is how a backend did a kind of work, and how often.
type Way struct {
	Work  string // the work: "product"
	By    string // what did it: "library"
	Why   string // why nothing better did; empty where there is nothing better. There are few different texts
	Last  string // the error that was the reason last, if there was one
	Times int64
}

// Noter is a [Backend] that has more to say of an instruction than what it is.
type Noter interface {
	// Note is a few words on how it is computed for operands of some types, to stand behind its
	// name; empty where there is nothing to say.
	Note(i Instr, in []Type) string
}

// Surveyor is a [Backend] that counts the ways in which it works: a GPU's, of package kernels/gpu.
type Surveyor interface {
	// Ways lists them in order of Work, By and Why.
	Ways() []Way
}
