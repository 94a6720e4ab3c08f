//go:build gpu

package main

const cudaBuild = "not yet: this binary is built with the tag gpu, which adds nothing so far"
