// Package reach says why an address cannot be reached, and whether what listens there speaks TLS
// or belongs to another job.
package reach
