package kv

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALongListOfKeysIsCutInErrors(t *testing.T) {
	keys := make([]string, 20)
	for i := range keys {
		keys[i] = "k" + strconv.Itoa(i)
	}
	msg := KeysTimeout("wait", time.Second, keys).Error()
	require.Contains(t, msg, "/k15 and 4 more")
	require.NotContains(t, msg, "k16")
	require.Less(t, len((&Error{Op: "set", Key: string(make([]byte, 8000)), Err: ErrClosed}).Error()), 1000)
}
