// Package report holds what gpucheck writes: result.json and result.md, with the outcome of each
// step, the GPU's data and the table of benchmarks. It also is "gpucheck device", which tells those
// data.
package report
