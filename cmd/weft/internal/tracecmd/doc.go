// Package tracecmd is "weft trace", which makes one trace of the workers' own.
package tracecmd
