// Package zero tells a setting that was left out, and takes its default, from one that is to be 0.
package zero
