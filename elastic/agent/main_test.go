package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
)

// TestMain makes the test binary its own worker: with WEFT_TEST_WORKER set it plays that part
// instead of testing.
func TestMain(m *testing.M) {
	part := os.Getenv("WEFT_TEST_WORKER")
	if part == "" {
		proctest.Together(4)
		os.Exit(m.Run())
	}
	play, ok := parts[part]
	if !ok {
		play, ok = agentParts[part]
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "no such part:", part)
		os.Exit(99)
	}
	play()
}

var parts = map[string]func(){
	"environment": func() {
		for _, kv := range os.Environ() {
			fmt.Println(kv)
		}
		fmt.Println("args", os.Args[1:])
	},
	// Rank 1 fails once all others wait.
	"fail": func() {
		if os.Getenv("RANK") != "1" {
			fmt.Println("ready")
			block()
		}
		awaitGo()
		for i := range 12 {
			fmt.Fprintf(os.Stderr, "reason %d\n", i)
		}
		fmt.Fprint(os.Stderr, "last words without a line end")
		os.Exit(3)
	},
	"killed": func() {
		if os.Getenv("RANK") == "1" {
			awaitGo()
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		}
		fmt.Println("ready")
		block()
	},
	"wait": func() {
		fmt.Println("ready")
		block()
	},
	// The worker says who it is, and never asks for its place.
	"deaf": func() {
		fmt.Println("here", os.Getpid())
		block()
	},
	"ignore": func() {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		block()
	},
	"speak": func() {
		fmt.Print("out\r50%\rof ", os.Getenv("RANK"))
		fmt.Fprintln(os.Stderr, "err of", os.Getenv("RANK"))
	},
	// Rank 1 fails in the first attempt.
	"fail once": func() {
		fmt.Println("attempt", os.Getenv(elastic.RestartsVariable))
		if os.Getenv("RANK") == "1" && os.Getenv(elastic.RestartsVariable) == "0" {
			os.Exit(5)
		}
	},
	// Rank 1 fails in the first attempt, rank 0 when it is told.
	"fail in turn": func() {
		switch {
		case os.Getenv("RANK") == "0":
			awaitGo()
			fmt.Fprintln(os.Stderr, "the real reason")
			os.Exit(9)
		case os.Getenv(elastic.RestartsVariable) == "0":
			os.Exit(2)
		}
		block()
	},
	// Rank 1 fails in the first attempt, and rank 0 gives up when it is told.
	"give up": func() {
		switch {
		case os.Getenv("RANK") == "0":
			awaitGo()
			fmt.Fprintln(os.Stderr, "worker1 has gone")
			os.Exit(1)
		case os.Getenv(elastic.RestartsVariable) == "0":
			fmt.Fprintln(os.Stderr, "the loss is NaN")
			os.Exit(2)
		}
		block()
	},
	// The worker says what it reads.
	"read": func() {
		b, err := io.ReadAll(os.Stdin)
		fmt.Printf("read %s\n", b)
		if err != nil {
			os.Exit(1)
		}
	},
	// The worker reads a line, and fails in the first attempt.
	"read a line": func() {
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("attempt %s read %s", os.Getenv(elastic.RestartsVariable), line)
		if os.Getenv(elastic.RestartsVariable) == "0" {
			os.Exit(1)
		}
	},
	// Rank 1 says why it fails, in its error file.
	"explain": func() {
		if os.Getenv("RANK") != "1" {
			block()
		}
		if err := elastic.WriteError(errors.New("the loss is NaN\nin step 7")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(4)
	},
	// The worker leaves a process behind, which holds the fifo open.
	"leave": func() {
		leave(exec.Command(os.Args[0]))
	},
	// So does this one, in a session of its own and with the output still open: no group signal
	// reaches it.
	"desert": func() {
		cmd := exec.Command(os.Args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		leave(cmd)
	},
	"hold": func() {
		hold()
		fmt.Println("holding")
		block()
	},
	"dial": func() {
		conn, err := net.Dial("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_ = conn.Close()
	},
	// The worker meets all others in their store.
	"meet": func() {
		st, err := store.Open(context.Background(), "env://", store.OpenConfig{NoWait: true})
		world, _ := strconv.Atoi(os.Getenv("WORLD_SIZE"))
		if err == nil {
			err = st.Store.Barrier(context.Background(), "all", world)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("met", world)
	},
	"role": func() {
		fmt.Println(os.Getenv("ROLE_NAME"), os.Getenv("ROLE_RANK"), "of", os.Getenv("ROLE_WORLD_SIZE"), "in", os.Getenv("WORLD_SIZE"))
	},
	// The worker ignores SIGTERM; in the first attempt rank 1 leaves a process that holds the fifo.
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM)
		if os.Getenv("RANK") == "1" && os.Getenv(elastic.RestartsVariable) == "0" {
			leave(exec.Command(os.Args[0]))
		}
		fmt.Println("here", os.Getpid())
		block()
	},
	// The worker says who it is, and each place that it gets.
	"stay": func() {
		m, err := elastic.Join(context.Background()) // who has not joined yet is started again in a new round
		fmt.Println("here", os.Getpid())
		fmt.Printf("attempt %s, restart %s\n", os.Getenv("TORCHELASTIC_RESTART_COUNT"), os.Getenv(elastic.RestartsVariable))
		for err == nil {
			p := m.Place()
			fmt.Println("place", p.Rank, "of", p.World)
			<-p.Over
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	},
	// An agent whose one worker holds the fifo.
	"agent": func() {
		_ = os.Setenv("WEFT_TEST_WORKER", "hold")
		_, err := Run(context.Background(), Spec{Program: os.Args[0], NprocPerNode: 1, Stdout: os.Stdout, Stderr: os.Stderr})
		fmt.Println("the agent ended:", err)
	},
}

// block waits for a signal that never comes, so that only SIGTERM and SIGKILL end it.
func block() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	<-never
}

// awaitGo waits for the test to open the way by the fifo.
func awaitGo() {
	f, err := os.Open(os.Getenv("WEFT_TEST_FIFO"))
	if err == nil {
		_, err = io.ReadAll(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(98)
	}
}

func hold() {
	f, err := os.OpenFile(os.Getenv("WEFT_TEST_FIFO"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.Write([]byte("x"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(97)
	}
	held = f
}

var held *os.File // keeps the finalizer from closing the fifo

func leave(cmd *exec.Cmd) {
	cmd.Env = append(os.Environ(), "WEFT_TEST_WORKER=hold")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(96)
	}
	fmt.Println("left", cmd.Process.Pid)
}

// job is a Spec whose workers play a part.
func job(t *testing.T, part string, workers int) Spec {
	t.Helper()
	program, err := os.Executable()
	require.NoError(t, err)
	return Spec{Program: program, NprocPerNode: workers, Env: append(os.Environ(), "WEFT_TEST_WORKER="+part,
		"GORACE=atexit_sleep_ms=0")} // the race detector makes every exit take a second otherwise
}

// fifo makes a fifo that the job's workers know.
func fifo(t *testing.T, spec *Spec) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, unix.Mkfifo(path, 0o600))
	spec.Env = append(spec.Env, "WEFT_TEST_FIFO="+path)
	return path
}

// heldFifo opens the fifo for reading before anybody holds it; released then says whether nobody
// does any more.
func heldFifo(t *testing.T, path string) (released func() error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return func() error {
		require.NoError(t, f.SetReadDeadline(time.Now().Add(time.Minute)))
		got, err := io.ReadAll(f)
		if err == nil && string(got) != "x" {
			return fmt.Errorf("the holder wrote %q; expected one x", got)
		}
		return err
	}
}

// strayed does something, and says which goroutines of this package it has left. One that has done
// its work may be about to end.
func strayed(do func()) string {
	return strays(marked(do), 1000)
}

// marked does something, and returns the mark of the goroutines that come of it.
func marked(do func()) string {
	mark := strconv.FormatUint(rand.Uint64(), 36)
	pprof.Do(context.Background(), pprof.Labels("of", mark), func(context.Context) { do() })
	return mark
}

// strays are the goroutines of this package with a mark that are still there.
func strays(mark string, tries int) string {
	for {
		var all bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&all, 1)
		var found []string
		for g := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(g, mark) && (strings.Contains(g, "process.(*Process)") || strings.Contains(g, "agent.(*agent)")) {
				found = append(found, g)
			}
		}
		if tries--; len(found) == 0 || tries <= 0 {
			return strings.Join(found, "\n\n")
		}
		runtime.Gosched()
	}
}
