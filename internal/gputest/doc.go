// Package gputest runs tests on every kind of accelerator that there is without a GPU, and programs
// on GPUs that remember what they were to compile.
package gputest
