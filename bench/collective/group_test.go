package collective

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/internal/lenient"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// What a member that is started is told.
const (
	storeVariable = "WEFT_BENCH_STORE"
	rankVariable  = "WEFT_BENCH_RANK"
	sizeVariable  = "WEFT_BENCH_SIZE"
	laneVariable  = "WEFT_BENCH_LANE"
	tokenVariable = "WEFT_TOKEN"
)

// patience bounds the beginning and the end of a job.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	size, _ := strconv.Atoi(os.Getenv(sizeVariable))
	if lenient.Crowded(max(size, 2), runtime.NumCPU()) { // as weft run starts workers
		lenient.Become()
	}
	if os.Getenv(storeVariable) == "" {
		os.Exit(m.Run())
	}
	if err := member(size); err != nil {
		fmt.Fprintln(os.Stderr, "member:", err)
		os.Exit(1)
	}
}

// order is what all members do next, as rank 0 says; Times 0 is the end.
type order struct {
	Op    string
	Bytes int
	Times int
}

// member is a rank but 0.
func member(size int) error {
	rank, err := strconv.Atoi(os.Getenv(rankVariable))
	if err != nil {
		return err
	}
	w, g, err := join(os.Getenv(storeVariable), rank, size, os.Getenv(laneVariable), os.Getenv(tokenVariable))
	if err != nil {
		return err
	}
	for {
		all, err := collective.Agree(context.Background(), g, order{})
		if err != nil || all[0].Times == 0 {
			return errors.Join(err, g.Close(), leave(w))
		}
		if _, _, err = run(g, all[0]); err != nil {
			return err
		}
	}
}

func join(addr string, rank, size int, lane, token string) (*rpc.Worker, *collective.Group, error) {
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id, err := transport.IdentityFromToken(token, "bench", "bench", time.Now)
	if err != nil {
		return nil, nil, err
	}
	net, err := transport.New(transport.Config{Identity: id, Lanes: []string{lane}})
	if err != nil {
		return nil, nil, err
	}
	st, err := store.Dial(c, store.ClientConfig{Addr: addr})
	if err != nil {
		return nil, nil, err
	}
	w, err := rpc.Join(c, rpc.Config{Store: st, Rank: rank, WorldSize: size, Network: net})
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	g, err := collective.Open(c, w, "bench")
	return w, g, err
}

func leave(w *rpc.Worker) error {
	c, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.Leave(c)
}

// run does what is ordered, and gives the time that each of it took here, and the processor time of
// all members.
func run(g *collective.Group, o order) (took []time.Duration, processors time.Duration, err error) {
	do := operations[o.Op](g, o.Bytes)
	for range 2 { // to warm up
		if err := do(context.Background()); err != nil {
			return nil, 0, err
		}
	}
	if err := g.Barrier(context.Background()); err != nil {
		return nil, 0, err
	}
	took = make([]time.Duration, 0, o.Times)
	before := processor()
	for range o.Times {
		began := time.Now()
		if err := do(context.Background()); err != nil {
			return nil, 0, err
		}
		took = append(took, time.Since(began))
	}
	spent := []int64{int64(processor() - before)}
	err = collective.AllReduce(context.Background(), g, spent, collective.Sum)
	return took, time.Duration(spent[0]), err
}

func processor() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// start starts a job, of which this process is rank 0.
func start(t testing.TB, size int, lane string) *collective.Group {
	t.Helper()
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	self, err := os.Executable()
	require.NoError(t, err)
	token := transport.NewToken()
	life, kill := context.WithCancel(context.Background())
	t.Cleanup(kill)
	for r := 1; r < size; r++ {
		other := exec.CommandContext(life, self)
		other.Env = append(os.Environ(), storeVariable+"="+server.Addr(), rankVariable+"="+strconv.Itoa(r), sizeVariable+"="+strconv.Itoa(size),
			laneVariable+"="+lane, tokenVariable+"="+token, "GORACE=atexit_sleep_ms=0")
		other.Stdout, other.Stderr = os.Stderr, os.Stderr
		require.NoError(t, other.Start())
		t.Cleanup(func() { require.NoError(t, other.Wait()) })
	}
	w, g, err := join(server.Addr(), 0, size, lane, token)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := collective.Agree(context.Background(), g, order{})
		require.NoError(t, errors.Join(err, g.Close(), leave(w)))
	})
	for _, m := range g.Members()[1:] {
		if m.Lane != lane {
			t.Skipf("rank %d is reached by lane %s", m.Rank, m.Lane)
		}
	}
	return g
}
