package main

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/rpctest"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
)

// attended runs a server that expects two trainers, in a bubble; come makes a trainer come.
func attended(t *testing.T, run func(t *testing.T, come func(name string) *rpc.Worker, ended <-chan error)) {
	synctest.Test(t, func(t *testing.T) {
		net, st := rpctest.SlowNet(time.Millisecond), store.NewMemory()
		join := func(name string) *rpc.Worker {
			w, err := rpc.Join(t.Context(), rpc.Config{
				Name: name, Store: st, Dynamic: true, Network: net.Host(name), Listen: name + ":0", Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			return w
		}
		v := newServer(settings{json: true, dim: 1}, &corpus{}, io.Discard)
		w, ended := join(serverName), make(chan error, 1)
		go func() {
			_, err := v.attend(t.Context(), w, 2)
			ended <- err
		}()
		run(t, join, ended)
		require.NoError(t, w.Close())
		require.NoError(t, st.Close())
	})
}

func leave(t *testing.T, ws ...*rpc.Worker) {
	for _, w := range ws {
		require.NoError(t, w.Leave(t.Context()))
	}
}

func TestAServerIsPatientWithTrainersThatTrainForHours(t *testing.T) {
	attended(t, func(t *testing.T, come func(string) *rpc.Worker, ended <-chan error) {
		one, two := come("trainer1"), come("trainer2")
		time.Sleep(5 * time.Hour) // of the bubble
		require.Empty(t, ended)
		leave(t, one, two)
		require.NoError(t, <-ended)
	})
}

func TestAServerGivesUpAMinuteAfterItIsAlone(t *testing.T) {
	attended(t, func(t *testing.T, come func(string) *rpc.Worker, ended <-chan error) {
		time.Sleep(50 * time.Second) // all of the bubble
		one := come("trainer1")
		time.Sleep(time.Hour)
		leave(t, one)
		time.Sleep(patience - time.Second)
		synctest.Wait()
		require.Empty(t, ended)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, ended, 1)
		require.EqualError(t, <-ended, "of 2 trainers only these came: [trainer1]")
	})
}
