// Package opticks holds a text for the example programs: Isaac Newton's Opticks, the fourth edition
// of 1730, out of copyright, prepared by Suzanne Lybarger, steve harris, Josephine Paolucci and the
// Online Distributed Proofreading Team for Project Gutenberg,
// https://www.gutenberg.org/ebooks/33504.
package opticks

import _ "embed"

//go:embed opticks.txt
var text string

// Text is the whole book, some 570,000 characters.
func Text() string { return text }
