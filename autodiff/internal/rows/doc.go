// Package rows holds a value of which only some rows are not zero: the sum of Values[k] at row
// IDs[k], for each k. It adds such values, and makes whole ones of them, on any device. It knows
// buffers and instructions, and no tensors.
package rows
