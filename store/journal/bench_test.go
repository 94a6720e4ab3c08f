package journal

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// go test -run '^$' -bench Commit ./store/journal
func BenchmarkCommit(b *testing.B) {
	for _, policy := range []Policy{Always, Policy(100 * time.Millisecond), Never} {
		for _, callers := range []int{1, 8} {
			b.Run(fmt.Sprintf("sync=%v/callers=%d", policy, callers), func(b *testing.B) {
				j, err := Open(filepath.Join(b.TempDir(), "journal"), Config{Sync: policy}, nil)
				require.NoError(b, err)
				defer j.Close()
				record := make([]byte, 64)
				done := make(chan struct{}, callers)
				for i := range callers {
					go func() {
						for range (b.N + i) / callers {
							if err := j.Commit(j.Append(record)); err != nil {
								b.Error(err)
							}
						}
						done <- struct{}{}
					}()
				}
				for range callers {
					<-done
				}
			})
		}
	}
}
