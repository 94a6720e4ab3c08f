package doctor

import (
	"bytes"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestASecretThatNoJobWouldTakeIsAFindingThatDoesNotShowIt(t *testing.T) {
	f := examineToken(func(string) string { return "" })
	require.Equal(t, good, f.verdict)
	f = examineToken(func(name string) string { return map[string]string{"WEFT_TOKEN": "do-not-show-me"}[name] })
	require.Equal(t, bad, f.verdict)
	require.Contains(t, f.text, "$WEFT_TOKEN: the job's secret is too weak")
	require.NotContains(t, f.text, "do-not-show-me")
	f = examineToken(func(name string) string { return map[string]string{"WEFT_CA": "a.pem", "WEFT_CERT": "b.pem"}[name] })
	require.Equal(t, finding{good, "token", "WEFT_CA, WEFT_CERT and WEFT_KEY name certificates, which come before a secret"}, f)
}

func TestTheReportCountsAsItsWorstFinding(t *testing.T) {
	var out bytes.Buffer
	require.Equal(t, good, report(&out, nil))
	require.Equal(t, bad, report(&out, []finding{{good, "a", "fine"}, {bad, "b", "broken"}, {poor, "c", "slow"}}))
	require.Equal(t, "ok   a              fine\nFAIL b              broken\n!    c              slow\n", out.String())
}

func TestLowLimitsComeWithAdvice(t *testing.T) {
	for _, c := range []struct {
		f    finding
		want verdict
		text string
	}{
		{examineBLAS("openblas", "core Prescott", true), poor, "unset OPENBLAS_CORETYPE"},
		{examineBLAS("openblas", "core Prescott", false), good, "Prescott"},
		{examineBLAS("openblas", "core Haswell", true), good, "Haswell"},
		{examineBLAS("openblas", "core Core2, because this OpenBLAS does not know Haswell, which was asked for: a newer one may be faster", true), poor, "newer"},
		{examineBLAS("go", "avx2", true), good, "go avx2"},
		{examineBLAS("gonum", "pure Go without vectors", true), poor, "pure Go"},
		{examineBLAS("none", "WEFT_BLAS=openblas, but", true), bad, "WEFT_BLAS"},
		{examineVectors("avx512"), good, "avx512"},
		{examineVectors("plain"), poor, "GOEXPERIMENT=simd"},
		{examineThreads(4, nil), good, "4 per process"},
		{examineThreads(2, errors.New(`OMP_NUM_THREADS="x" does not count`)), poor, "does not count"},
		{judgeBuffer("rmem_max", 212992), poor, "sysctl -w net.core.rmem_max=7500000"},
		{judgeBuffer("wmem_max", 7_500_000), good, "net.core.wmem_max is 7500000 bytes"},
		{judgeQueue(128), poor, "sysctl -w net.core.somaxconn=4096"},
		{judgeQueue(4096), good, "4096"},
		{judgeDescriptors(1024), poor, "ulimit -n 4096"},
		{judgeDescriptors(1 << 20), good, "1048576"},
		{judgeShared(nil, 0), good, "lend"},
		{judgeShared(syscall.EACCES, 2), poor, "vm.memfd_noexec=1"},
		{judgeShared(os.NewSyscallError("memfd_create", syscall.EPERM), 0), poor, "memfd_create: operation not permitted): tensors between workers of this machine are copied; allow memfd_create"},
		{judgeShared(syscall.EMFILE, 0), poor, "raise ulimit -n"},
		{judgeShared(syscall.ENOMEM, 1), poor, "copied"},
	} {
		require.Equal(t, c.want, c.f.verdict, c.f.text)
		require.Contains(t, c.f.text, c.text)
	}
}

func TestTheLoopbackCheckFailsWhereNothingArrives(t *testing.T) {
	deadline := time.Now().Add(5 * time.Second)
	from, to := net.Pipe()
	require.NoError(t, to.Close())
	require.Error(t, passByte(from, to, deadline))
	from, to = net.Pipe()
	require.Error(t, passByte(from, to, time.Now().Add(-time.Second)), "the deadline is over")
}
