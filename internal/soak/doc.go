// Package soak lets one random test be both a quick check and a long one: the number of cases it
// asks for grows under the build tag "soak" (make soak). Under the race detector, which makes a
// case several times as long, it is a quarter.
package soak
