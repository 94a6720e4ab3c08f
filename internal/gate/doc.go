// Package gate is the way into something that is closed once: who is inside keeps it open, and
// nobody comes in when it is to be closed. It never makes anybody wait but who closes, so gates may
// be entered within one another, in any order.
package gate
