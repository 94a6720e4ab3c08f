// Package storetest is the conformance suite of store.Store: what every store must do, whatever it
// is made of.
//
// A new store needs only a constructor:
//
//	func TestMyStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return New() })
//		storetest.RunShared(t, func(t *testing.T) func() store.Store { … })
//	}
package storetest
