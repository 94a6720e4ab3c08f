// Package transporttest is the suite that every transport.Network passes.
package transporttest
