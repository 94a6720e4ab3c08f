//go:build !linux

package main

// subreaper is not to be had here.
func subreaper() bool { return false }
