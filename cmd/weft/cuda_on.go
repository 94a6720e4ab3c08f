//go:build gpu

package main

const cudaBuild = "this binary is built with the tag gpu"
