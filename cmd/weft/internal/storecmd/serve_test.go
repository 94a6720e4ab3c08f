package storecmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSizesHaveUnitsOrNone(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "1KiB": 1 << 10, "512MiB": 512 << 20, "4 GiB": 4 << 30, "2TiB": 2 << 40} {
		n, err := parseSize(text)
		require.NoError(t, err)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "0", "-1", "1.5GiB", "GiB", "1GB", "99999999999TiB", "99999999999999999999"} {
		_, err := parseSize(text)
		require.ErrorContains(t, err, "--max-memory: expected a number of bytes", text)
	}
}

func TestAMessageIsToldOnceAMinute(t *testing.T) {
	var out bytes.Buffer
	h := &seldom{Handler: slog.NewTextHandler(&out, nil)}
	at := time.Unix(1e9, 0)
	for _, c := range []struct {
		after time.Duration
		text  string
	}{{0, "a"}, {time.Second, "a"}, {time.Second, "b"}, {59 * time.Second, "a"}, {time.Minute, "a"}} {
		require.NoError(t, h.Handle(t.Context(), slog.NewRecord(at.Add(c.after), slog.LevelWarn, c.text, 0)))
	}
	require.Equal(t, 2, strings.Count(out.String(), "msg=a"))
	require.Equal(t, 1, strings.Count(out.String(), "msg=b"))
}
