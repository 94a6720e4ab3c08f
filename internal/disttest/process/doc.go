// Package process holds tests of workers in processes of their own: what is left of one when
// another is killed, what a hostile one can do, and a soak.
package process
