// Package transporttest is the suite that every Network passes, and what tests of links share:
// tokens, certificates, a log, and conduits in memory. It knows package wire alone, so that all
// tests may use it.
package transporttest
