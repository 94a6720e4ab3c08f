//go:build !linux

// Command flood needs Linux, whose loopback has 64 addresses and where lane local is.
package main

import "log"

func main() { log.Fatal("flood: it runs on Linux only") }
