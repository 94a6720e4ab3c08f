// Package rpctest makes worlds of workers for the tests of the rooms above rpc.
package rpctest
