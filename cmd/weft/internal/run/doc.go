// Package run is "weft run". It starts the agent of package elastic on this machine, serves the
// agent's health, and turns the end of the job into an exit code. Package job reads its flags.
package run
