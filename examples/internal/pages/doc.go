// Package pages has the tests of the documentation: README.md and the pages in docs/. Every link
// leads somewhere, every sample in Go stands in a program or a test that runs, and no line is too
// long. The test of cmd/weft shows that every command is taken.
package pages
