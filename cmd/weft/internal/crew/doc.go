// Package crew asks the workers of a running job how they are, and shows what their groups wait
// for.
package crew
