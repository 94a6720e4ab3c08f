// Package syntax reads the text of PTX modules: [Parse] gives functions, variables and statements,
// each with its line. It knows how an instruction is written, not what it does. Text that is not
// understood is an error that names the line.
package syntax
