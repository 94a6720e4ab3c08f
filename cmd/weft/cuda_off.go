//go:build !gpu

package main

const cudaBuild = "not yet: everything runs on CPUs"
