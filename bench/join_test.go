package bench

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// BenchmarkJoin is the joining of whole worlds in one process, each worker with a connection of its
// own to a store over TCP, and with links over loopback.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{2, 8, 64} {
		b.Run(fmt.Sprintf("world=%d", n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				server, err := store.Serve(store.ServerConfig{})
				require.NoError(b, err)
				token := transport.NewToken()
				workers, stores := make([]*rpc.Worker, n), make([]store.Store, n)
				b.StartTimer()
				var wg sync.WaitGroup
				for rank := range n {
					wg.Go(func() {
						var err error
						if stores[rank], err = store.Dial(b.Context(), store.ClientConfig{Addr: server.Addr()}); err == nil {
							workers[rank], err = rpc.Join(b.Context(), rpc.Config{
								Store: stores[rank], Rank: rank, WorldSize: n, Token: token, JoinTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
							})
						}
						if err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				for rank := range n {
					if workers[rank] != nil {
						require.NoError(b, workers[rank].Close())
					}
					if stores[rank] != nil {
						require.NoError(b, stores[rank].Close())
					}
				}
				require.NoError(b, server.Close())
				b.StartTimer()
			}
		})
	}
}
