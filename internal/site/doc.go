// Package site finds the line of a user's code in a stack of calls: the nearest that is not in the
// rooms that do a user's mathematics, in which no user's mistake is. Tests count as users.
package site
