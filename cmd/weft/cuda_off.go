//go:build !gpu

package main

const cudaBuild = "this binary is built without it; make gpu builds one that has it"
