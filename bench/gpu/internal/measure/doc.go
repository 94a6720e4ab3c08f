// Package measure is "gpucheck bench": the models and the cases that are run on a GPU, what each
// costs, and whether its numbers are right. Each case prints lines of JSON; package report makes a
// page of them.
package measure
