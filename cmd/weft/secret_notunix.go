//go:build !unix

package main

import "os"

// checkSecret takes every file: modes mean nothing here.
func checkSecret(*os.File) error { return nil }
