// Package search lists the places where NVIDIA's libraries may lie on a machine.
package search
