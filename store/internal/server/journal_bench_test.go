package server

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store/internal/client"
	"github.com/weft-project/weft/store/journal"
)

// What a journal costs: go test -run '^$' -bench AddJournal ./store
func BenchmarkAddJournal(b *testing.B) {
	policies := map[string]*journal.Policy{"none": nil}
	for _, p := range []journal.Policy{journal.Always, journal.Policy(100 * time.Millisecond), journal.Never} {
		policies[p.String()] = &p
	}
	for _, name := range []string{"none", "never", "100ms", "always"} {
		for _, clients := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("sync=%s/clients=%d", name, clients), func(b *testing.B) {
				var cfg Config
				if p := policies[name]; p != nil {
					cfg.Journal = JournalConfig{Path: filepath.Join(b.TempDir(), "journal"), Sync: *p}
				}
				s, err := Serve(cfg)
				require.NoError(b, err)
				defer s.Close()
				var wg sync.WaitGroup
				for i := range clients {
					cl, err := client.Dial(b.Context(), client.Config{Addr: s.Addr()})
					require.NoError(b, err)
					defer cl.Close()
					wg.Go(func() {
						for range (b.N + i) / clients {
							if _, err := cl.Add(b.Context(), "n", 1); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			})
		}
	}
}
