// Package doctor is "weft doctor". It reports what this machine offers to a job: devices, BLAS,
// limits of the system, and the speed of each lane. With --init it asks the workers of a running
// job which lanes they use instead.
//
// A finding is one line of the report. It is good, poor (slower than it could be) or bad (a job
// cannot run). The functions that judge take what was read as arguments, and read nothing
// themselves.
package doctor
