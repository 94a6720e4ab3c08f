// Package peers is what ranks tell each other of what they bring and of why they fail, so that all
// of them say the same. Users see its types and errors in package parallel.
package peers
