// Package finite tells whether rows of numbers hold infinities and NaN, faster than one number at a
// time. It keeps nothing, and is safe for concurrent use.
package finite
