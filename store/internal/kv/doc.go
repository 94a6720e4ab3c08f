// Package kv is what all stores have in common: errors, limits, the time and the wording of an
// operation, watches, and what Add and CompareSet make of a value.
//
// Package store shows users most of it under the same names. [Settings], [Operation], [Sum] and
// [Compared] are for those who write a store. It knows no command and does no I/O.
package kv
