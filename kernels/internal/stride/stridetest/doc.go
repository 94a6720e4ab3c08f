// Package stridetest goes through the elements of strided layouts one by one: the oracle of tests.
package stridetest
