package rpc

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryRecordOfAPanicNamesWorkerAndPeer(t *testing.T) {
	boom := Define("boom", func(context.Context, int) (int, error) { panic("aua") })
	log := &journal{}
	ws := sim(t, 2, func(_ int, cfg *Config) {
		cfg.Functions, cfg.Logger = []Function{boom}, slog.New(slog.NewJSONHandler(log, nil))
	})
	_, err := boom.Call(ws[0].Context(t.Context()), "worker1", 1)
	require.ErrorIs(t, err, ErrPanic)
	records := 0
	for line := range strings.Lines(log.String()) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		require.Equal(t, []any{"worker1", "worker0"}, []any{r["worker"], r["peer"]}, line)
		if r["panic"] == "aua" {
			require.Equal(t, "boom", r["function"])
			records++
		}
	}
	require.Equal(t, 1, records)
}
