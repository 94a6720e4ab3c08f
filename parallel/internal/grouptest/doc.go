// Package grouptest has groups whose members are all in one process, for tests.
package grouptest
