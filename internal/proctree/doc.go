// Package proctree finds the processes below one, and has a process adopt those below it that lose
// their parent. With both, whoever starts a process can end all that it leaves behind, in whatever
// group or session. Only Linux has this; elsewhere nothing is adopted and nothing found.
//
// Both functions are safe for concurrent use. What they find may have ended since.
package proctree
