// Package callsite tells from where in a user's code a function is called, so cheaply that every
// recorded call can know it: a [Table] names each call stack once and recognises it by a hash.
// [Stacks] names none before it is asked.
package callsite
