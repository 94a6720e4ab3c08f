// Package tools pins the development tools. Its tests show that the linter's import rules say what
// docs/design.md says, and that each of them can fail.
package tools
