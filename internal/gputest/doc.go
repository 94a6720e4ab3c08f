// Package gputest runs tests on every kind of accelerator that there is without a GPU.
package gputest
