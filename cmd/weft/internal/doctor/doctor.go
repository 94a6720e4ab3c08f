package doctor

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/internal/secret"
	cpukernels "github.com/weft-project/weft/kernels/cpu"
	"github.com/weft-project/weft/rpc"
)

// quicBuffer is the UDP buffer, in bytes, below which QUIC loses packets in bursts on fast links.
const quicBuffer = 7_500_000

// descriptors is how many files and connections a worker among hundreds needs: two to eight for
// each link.
const descriptors = 4096

// listenQueue is the queue of waiting connections that a job of many workers needs when all start
// at once.
const listenQueue = 4096

// verdict is how a finding counts.
type verdict int

const (
	good verdict = iota
	poor         // works, but slower or smaller than it could
	bad          // a job cannot run
)

func (v verdict) String() string { return [...]string{"ok", "!", "FAIL"}[v] }

// finding is one line of the report.
type finding struct {
	verdict    verdict
	what, text string
}

// Command is "weft doctor", which prints to stdout.
func Command(stdout io.Writer) *cobra.Command {
	quick, job := false, jobFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine offers to a job, and what would help",
		Long: `Say what this machine offers to a job, and what would help.

With --init, and the job's secret or certificates, it asks a running job instead. It says which
lanes each pair of workers uses, and who does not answer; then the exit code is 1. --init names the
job's store, which weft run and weft status tell, or where its machines meet (--rdzv-endpoint). From
there it finds the store that the workers have in this round. The job is not disturbed.`,
		Example: "  weft doctor\n  weft doctor --init tcp://127.0.0.1:29500 --token-file job.token",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if job.init != "" {
				return examineJob(cmd.Context(), stdout, job)
			}
			for _, name := range []string{"token-file", "ca", "cert", "key", "timeout", "all", "rdzv-id"} {
				if cmd.Flags().Changed(name) {
					return fmt.Errorf("--%s is about a running job: give its store with --init tcp://host:port", name)
				}
			}
			findings := slices.Concat(examine(quick), examineLanes(cmd.Context(), quick), examineSystem(os.ReadFile))
			if report(stdout, findings) == bad {
				return cli.Exit(cli.CodeFailed, errors.New("a job cannot run here: see FAIL above"))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&quick, "quick", false, "look, but do not measure")
	cmd.Flags().StringVar(&job.init, "init", "", "tcp://host:port of a running job's store, or of where its machines meet: show its workers' lanes")
	job.Register(cmd)
	cmd.Flags().DurationVar(&job.timeout, "timeout", 2*time.Second, "for the job's store and for each of its workers to answer")
	cmd.Flags().BoolVar(&job.all, "all", false, "list all pairs, however many")
	return cmd
}

// report prints the findings and returns the worst verdict.
func report(w io.Writer, findings []finding) verdict {
	worst := good
	for _, f := range findings {
		fmt.Fprintf(w, "%-4s %-14s %s\n", f.verdict, f.what, f.text)
		worst = max(worst, f.verdict)
	}
	return worst
}

// examine looks at what every system has.
func examine(quick bool) []finding {
	blas, detail := cpukernels.BLAS()
	return slices.Concat([]finding{
		{good, "weft", cli.Version()},
		{good, "processors", fmt.Sprintf("%d, of which Go uses %d", runtime.NumCPU(), runtime.GOMAXPROCS(0))},
		examineDevices(),
	}, examineCUDA(quick), []finding{
		examineBLAS(blas, detail, cpu.X86.HasAVX2),
		examineVectors(cpukernels.Vectors()),
		examineThreads(cpukernels.Threads()),
		examineLoopback(),
		examineToken(os.Getenv),
	})
}

// examineBLAS says what multiplies matrices, and what would do it faster.
func examineBLAS(name, detail string, avx2 bool) finding {
	text := strings.TrimSpace(name + " " + detail)
	switch {
	case name == "none":
		return finding{bad, "blas", text}
	case name == "gonum" || strings.Contains(detail, "a newer one may be faster"):
		return finding{poor, "blas", text}
	case name == "openblas" && strings.Contains(detail, "core Prescott") && avx2:
		return finding{poor, "blas", text + "; this processor can run faster ones: unset OPENBLAS_CORETYPE"}
	}
	return finding{good, "blas", text}
}

// examineVectors says what all other loops run on.
func examineVectors(name string) finding {
	if name == cpukernels.NoVectors {
		return finding{poor, "vectors", "none: build with GOEXPERIMENT=simd, as make does (go 1.26, amd64), on a processor with AVX2, to be several times faster"}
	}
	return finding{good, "vectors", name}
}

// examineThreads says how many threads large computations are spread over.
func examineThreads(n int, err error) finding {
	if err != nil {
		return finding{poor, "threads", fmt.Sprintf("%d per process: %v", n, err)}
	}
	return finding{good, "threads", fmt.Sprintf("%d per process, by OMP_NUM_THREADS or Go's GOMAXPROCS; weft run gives each of several workers one, unless OMP_NUM_THREADS is set", n)}
}

func examineDevices() finding {
	set, err := device.NewSet()
	if err != nil {
		return finding{bad, "devices", err.Error()}
	}
	return finding{good, "devices", strings.Trim(fmt.Sprint(set.IDs()), "[]")}
}

// examineToken says whether there is a token, and never what it is.
func examineToken(env func(string) string) finding {
	_, err := secret.FromEnv(env)
	named := strings.ReplaceAll(secret.Named(env), "$", "")
	switch {
	case env(rpc.CAVariable)+env(rpc.CertVariable)+env(rpc.KeyVariable) != "":
		return finding{good, "token", rpc.CAVariable + ", " + rpc.CertVariable + " and " + rpc.KeyVariable + " name certificates, which come before a secret"}
	case err != nil:
		return finding{bad, "token", err.Error()}
	case named == "":
		return finding{good, "token", secret.Variable + " is not set: weft run makes one for each job of one machine"}
	}
	return finding{good, "token", named + " is set: all jobs started from here share its secret"}
}

// examineLoopback sends a byte to itself by TCP, as the store does, and by UDP, as QUIC does.
func examineLoopback() finding {
	deadline := time.Now().Add(5 * time.Second)
	if err := errors.Join(loopTCP(deadline), loopUDP(deadline)); err != nil {
		return finding{bad, "loopback", fmt.Sprintf("workers on this machine cannot talk: %v", err)}
	}
	return finding{good, "loopback", "TCP and UDP on 127.0.0.1 work"}
}

func loopTCP(deadline time.Time) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	from, err := net.DialTimeout("tcp", l.Addr().String(), time.Until(deadline))
	if err != nil {
		return err
	}
	defer from.Close()
	if err := l.(*net.TCPListener).SetDeadline(deadline); err != nil {
		return err
	}
	to, err := l.Accept()
	if err != nil {
		return err
	}
	defer to.Close()
	return passByte(from, to, deadline)
}

func loopUDP(deadline time.Time) error {
	to, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	defer to.Close()
	from, err := net.Dial("udp", to.LocalAddr().String())
	if err != nil {
		return err
	}
	defer from.Close()
	return passByte(from, to, deadline)
}

func passByte(from, to net.Conn, deadline time.Time) error {
	if err := errors.Join(from.SetDeadline(deadline), to.SetDeadline(deadline)); err != nil {
		return err
	}
	if _, err := from.Write([]byte{42}); err != nil {
		return err
	}
	var b [1]byte
	if _, err := io.ReadFull(to, b[:]); err != nil {
		return err
	}
	if b[0] != 42 {
		return fmt.Errorf("sent 42, got %d", b[0])
	}
	return nil
}

// judgeBuffer judges one of the kernel's limits for UDP buffers.
func judgeBuffer(name string, bytes int) finding {
	text := fmt.Sprintf("net.core.%s is %d bytes", name, bytes)
	if bytes < quicBuffer {
		return finding{poor, "udp buffer", fmt.Sprintf("%s; for QUIC at full speed: sysctl -w net.core.%s=%d", text, name, quicBuffer)}
	}
	return finding{good, "udp buffer", text}
}

// judgeQueue judges the kernel's limit for connections that wait to be accepted.
func judgeQueue(n int) finding {
	text := fmt.Sprintf("net.core.somaxconn is %d", n)
	if n < listenQueue {
		return finding{poor, "listen queue", fmt.Sprintf("%s; for jobs of thousands of workers: sysctl -w net.core.somaxconn=%d", text, listenQueue)}
	}
	return finding{good, "listen queue", text}
}

// judgeDescriptors judges for how many files and connections a process may ask.
func judgeDescriptors(n uint64) finding {
	if n < descriptors {
		return finding{poor, "descriptors", fmt.Sprintf("a process may have %d; for jobs of 64 workers and more: ulimit -n %d (in a container: --ulimit nofile=%d)",
			n, descriptors, descriptors)}
	}
	return finding{good, "descriptors", fmt.Sprintf("a process may have %d", n)}
}

// judgeShared judges the attempt to make a file in memory, as large tensors lie in one.
func judgeShared(err error, noexec int) finding {
	text := "memory files work: workers of this machine lend each other tensors, up to half of its memory"
	if err == nil {
		return finding{good, "shared memory", text}
	}
	text = fmt.Sprintf("no memory files (%v): tensors between workers of this machine are copied", err)
	switch {
	case noexec == 2:
		text += "; allow them: sysctl -w vm.memfd_noexec=1"
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOSYS):
		text += "; allow memfd_create in the container's seccomp profile"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		text += "; raise ulimit -n"
	}
	return finding{poor, "shared memory", text}
}

// readNumber reads a file of the kernel that holds one number.
func readNumber(read func(string) ([]byte, error), path string) (int, error) {
	b, err := read(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
