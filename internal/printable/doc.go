// Package printable makes text of another process fit to be shown: in a terminal, a log, an error.
//
// Whoever wrote the text may be hostile. A raw escape sequence moves a terminal's cursor, renames
// its window, or hides what was printed before; a line break forges a line of a log. [Text] is the
// one function that every such text goes through, where it comes in or where it is shown; [Lines]
// is its form for several lines. Both are pure, and safe for concurrent use.
package printable
