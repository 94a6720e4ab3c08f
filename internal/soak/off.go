//go:build !soak

package soak

const factor = 1
