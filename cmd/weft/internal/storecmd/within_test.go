package storecmd

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

func TestWhoWaitsForAKeyIsToldWhatForAndUntilWhen(t *testing.T) {
	for timeout, want := range map[time.Duration]string{
		time.Minute:            "weft: waiting for a, b; it ends after 1m0s (--timeout)\n",
		noticeAfter:            "",
		100 * time.Millisecond: "",
	} {
		synctest.Test(t, func(t *testing.T) {
			m := store.NewMemory()
			defer m.Close()
			var errs bytes.Buffer
			s := &session{Store: m, flags: &storeFlags{timeout: timeout}, err: &errs}
			require.ErrorIs(t, s.waitKeys(t.Context(), []string{"a", "b"}), store.ErrTimeout)
			require.Equal(t, want, errs.String())
		})
	}
}

func TestWhatComesAtOnceIsNotAnnounced(t *testing.T) {
	var out, errs bytes.Buffer
	m := store.NewMemory()
	defer m.Close()
	require.NoError(t, m.Set(t.Context(), "k", []byte("v")))
	s := &session{Store: m, flags: &storeFlags{timeout: time.Minute}, out: printer{w: &out}, err: &errs}
	require.NoError(t, s.get(t.Context(), []string{"k"}))
	require.Equal(t, "v", out.String())
	require.Empty(t, errs.String())
}
