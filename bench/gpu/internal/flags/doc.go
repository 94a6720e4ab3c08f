// Package flags parses the flags of gpucheck's commands, and reports all that is wrong with them in
// one error.
package flags
