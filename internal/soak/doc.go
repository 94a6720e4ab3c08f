// Package soak lets one random test be both a quick check and a long one: the number of cases it
// asks for grows under the build tag "soak" (make soak).
package soak
