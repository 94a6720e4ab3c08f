// Package localaddr finds the address by which others reach this machine.
package localaddr
