package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDoctorReportsOnThisMachineAndKeepsTheToken(t *testing.T) {
	t.Setenv("WEFT_TOKEN", jobSecret)
	code, stdout, stderr := weft(t, "doctor", "--quick")
	require.Zero(t, code, stderr)
	for _, what := range []string{"weft", "processors", "devices", "cuda", "blas", "vectors", "threads", "loopback", "token", "lane local", "lane bulk", "lane quic"} {
		require.Regexp(t, `(?m)^(ok|!)\s+`+what, stdout)
	}
	require.Contains(t, stdout, "WEFT_TOKEN is set")
	require.NotContains(t, stdout+stderr, jobSecret)
}
