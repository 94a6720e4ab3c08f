// Package devicetest is the conformance suite of device.Device: a new device adds only its
// constructor.
package devicetest
