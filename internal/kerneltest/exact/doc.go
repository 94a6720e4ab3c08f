// Package exact computes functions of real numbers to far more digits than a float64 has, for
// tests.
package exact
