//go:build !soak && race

package soak

const times, of = 1, 4
