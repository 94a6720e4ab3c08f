// Package cache is a table of a bounded size for what was made for a key, such as a program for a
// set of types. It forgets what was not used for long.
package cache
