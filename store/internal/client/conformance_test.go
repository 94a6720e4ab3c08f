package client_test

import (
	"testing"

	"github.com/weft-project/weft/internal/storetest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/internal/client"
)

func TestTheClientConformsWithServersOfEveryRelease(t *testing.T) {
	const (
		appends, list, queues, errs, watches = storetest.Append, storetest.List, storetest.Queues, storetest.Errors, storetest.Watches
	)
	for release, without := range map[string][]storetest.Part{
		"1.13": {appends, list, queues, errs, storetest.Multi, watches}, "2.0": {list, queues, errs, watches},
		"2.1": {list, queues, errs, watches},
		"2.4": {list, queues, errs, watches}, "2.6": {list, queues, errs, watches}, "2.8": {list, errs, watches}, "2.15": {errs, watches}, "2.15 poll": {queues, errs, watches},
		"poll": {list, queues, errs, watches}, "weft": nil,
	} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			join := func(t *testing.T) func() store.Store {
				dial := client.Fake(t, release)
				return func() store.Store { return dial() }
			}
			storetest.Run(t, func(t *testing.T) store.Store { return join(t)() }, without...)
			storetest.RunShared(t, join, without...)
		})
	}
}
