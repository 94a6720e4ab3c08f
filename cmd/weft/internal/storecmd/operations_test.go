package storecmd

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/leak"
	"github.com/weft-project/weft/store"
)

func TestAStoreThatSaysNothingToWhoDoesNotWaitForAKeyIsAFailure(t *testing.T) {
	c, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	m := store.NewMemory()
	defer m.Close()
	silent := m.Wait(c, "k")
	require.ErrorIs(t, silent, store.ErrTimeout)
	for timeout, want := range map[time.Duration]int{0: cli.CodeFailed, time.Millisecond: cli.CodeMissing} {
		var exit *cli.ExitError
		require.ErrorAs(t, (&storeFlags{timeout: timeout}).explain(silent), &exit)
		require.Equal(t, want, exit.Code, "as set, keys and delete have no --timeout")
	}
}

func TestATerminalIsNotSteeredByWhatLiesInAStore(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out, terminal: true}
	require.NoError(t, p.value([]byte("plain words, 世界")))
	require.NoError(t, p.value([]byte("\x1b[2J\xff\n")))
	require.NoError(t, p.line("created", "a\tb", `"quoted"`, ""))
	require.Equal(t, "plain words, 世界\n\"\\x1b[2J\\xff\\n\"\ncreated\t\"a\\tb\"\t\"\\\"quoted\\\"\"\t\n", out.String())
}

// watched says when it is watched.
type watched struct {
	store.Store
	begun chan struct{}
}

func (w watched) Watch(c context.Context, key string) (*store.Watch, error) {
	defer close(w.begun)
	return w.Store.Watch(c, key)
}

func TestAWatchPrintsALineForEachChange(t *testing.T) {
	leak.Check(t)
	m := store.NewMemory()
	defer m.Close()
	var out bytes.Buffer
	s := &session{Store: watched{m, make(chan struct{})}, out: printer{w: &out}, count: 4}
	ended := make(chan error)
	go func() { ended <- s.watch(t.Context(), []string{"k"}) }()
	<-s.Store.(watched).begun
	require.NoError(t, m.Set(t.Context(), "k", []byte("a\nb")))
	require.NoError(t, m.Set(t.Context(), "k", []byte("two words")))
	_, err := m.Delete(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, m.Set(t.Context(), "k", nil))
	require.NoError(t, <-ended)
	require.Equal(t, "created\t\"a\\nb\"\nupdated\ttwo words\ndeleted\ncreated\t\n", out.String())
}

func TestChangesThatWereMissedAreTold(t *testing.T) {
	var out, errs bytes.Buffer
	s := &session{out: printer{w: &out}, err: &errs}
	require.NoError(t, s.printChange(store.Change{Kind: store.Updated, Key: "k", New: []byte("v"), Dropped: 7}))
	require.NoError(t, s.printChange(store.Change{Kind: store.Deleted, Key: "k", Dropped: -1}))
	require.Equal(t, "updated\tv\ndeleted\n", out.String())
	require.Equal(t, "weft: 7 changes of k were missed\nweft: changes of k may have been missed\n", errs.String())
}
