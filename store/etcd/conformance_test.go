package etcd

import (
	"testing"

	"github.com/weft-project/weft/internal/storetest"
	"github.com/weft-project/weft/store"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	space(t) // starts etcd, outside of what the suite looks after
	storetest.Run(t, func(t *testing.T) store.Store { return dial(t, space(t)) })
	storetest.RunShared(t, func(t *testing.T) func() store.Store {
		cfg := space(t)
		return func() store.Store { return dial(t, cfg) }
	})
}
