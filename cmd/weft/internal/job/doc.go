// Package job holds the flags that describe a job, as "weft run" and "weft status" take them, and
// what follows from them: the agent's Spec, for who takes part in the job, and its Place, for who
// looks at it.
//
// All wrong flags are reported in one error. Each line of it begins with the flag, or with the
// variable that the value is from.
package job
