// Package cli holds what all commands of weft share: exit codes, output that remembers its first
// error, signals, and the words of flags' errors. It knows nothing of jobs.
package cli
