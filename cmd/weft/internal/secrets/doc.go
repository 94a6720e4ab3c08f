// Package secrets holds the flags by which a command shows that it belongs to a job: a file with
// the job's secret, or certificates. It also is "weft token", which makes a secret.
//
// A flag counts more than a variable, and certificates count more than a secret.
package secrets
