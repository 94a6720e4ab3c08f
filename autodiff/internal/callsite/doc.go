// Package callsite tells from where in a user's code a function is called, so cheaply that every
// recorded call can know it: a [Table] names each call stack once and recognises it by a hash.
package callsite
