// Package secrettest gives tests tokens that cost nothing.
package secrettest
