//go:build soak

package soak

const times, of = 100, 1
