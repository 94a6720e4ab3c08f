package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

func seen(id, standing string, rank int, since time.Duration) rdzv.Seen {
	n := rdzv.Seen{Node: rdzv.Node{ID: id, Addr: "h-" + id, Slots: 2}, Standing: standing, Rank: rank, First: 2 * rank, For: since}
	if rank < 0 {
		n.First = -1
	}
	return n
}

func aFrame() frame {
	v := rdzv.View{Summary: rdzv.Summary{Round: 3, Phase: rdzv.Complete, Nodes: 2, Waiting: 1, Min: 2, Max: 4, Restarts: 1, MaxRestarts: 5},
		Config: rdzv.Config{Silence: 15 * time.Second}, Leader: "b", Age: time.Hour, For: 61 * time.Second,
		Nodes: []rdzv.Seen{seen("a", "participating", 0, time.Minute), seen("b", "participating", 1, time.Hour), seen("c", "waiting", -1, 1400*time.Millisecond)},
		Ended: []rdzv.Parted{{ID: "d", Addr: "h-d", Rank: 1, How: rdzv.WasLost, Why: "no word from it for 15s", Ago: 62 * time.Second}, {ID: "e\x1b[2J", Rank: -1}}}
	return frame{View: v, at: "h:1", job: "j"}
}

func TestAStatusDrawsWhoIsInWhoWaitsAndWhoHasGoneSinceWhenAndWhy(t *testing.T) {
	f := aFrame()
	f.Nodes[1].Done, f.Nodes[1].Failures = true, 1
	f.store = "tcp://h-a:29500"
	f.Nodes[0].Silent = 11200 * time.Millisecond
	f.Nodes[2].Earlier = []rdzv.Parted{{ID: "b0", How: rdzv.HasLeft, Why: "it was asked to", Ago: 3 * time.Second}, {ID: "b00"}}
	require.Equal(t, `job j at h:1, for 1h0m0s: round 3 is complete with 2 of 2 to 4 nodes since 1m1s
restarts: 1 of 5; restart policy: worker; a node is lost after 15s without a word
the workers' store: tcp://h-a:29500
RANK  STATE    SINCE   HEARD                RANKS  FAILED  ADDRESS  NODE
0     in       1m0s    11s ago, lost in 4s  0-1    0       h-a      a
1     done     1h0m0s  -                    2-3    1       h-b      b, leads
-     waiting  1s      <10s                 (2)    0       h-c      c; it is back: left 3s ago as b0: it was asked to
RANK  ENDED  AGO   WHY, NODE
1     lost   1m2s  no word from it for 15s (d)
-     left   0s    e [2J
`, f.text())
	f.silent, f.Leader = 8*time.Second, ""
	require.Contains(t, f.text(), "NO WORD of its leader for 8s")
	f.silent = 0
	require.Contains(t, f.text(), "nobody leads at this moment")
	f.Phase, f.Summary.Nodes = rdzv.Gathering, 1
	require.Contains(t, f.text(), "round 3 needs 1 more (1 of 2 to 4 are there) since 1m1s\n")
	f.Left = 9500 * time.Millisecond
	require.Contains(t, f.text(), "round 3 needs 1 more (1 of 2 to 4 are there) since 1m1s, and waits for 10s more\n")
	require.Contains(t, f.later(3*time.Second).text(), "and waits for 7s more\n")
	f.Summary.Nodes = 2
	require.Contains(t, f.text(), "round 3 has 2 of 2 to 4 nodes, and takes others for 10s more\n")
	f.Summary.Nodes = 1
	f.Phase, f.Failed, f.Outcome = rdzv.Closed, true, "all is lost"
	require.Contains(t, f.text(), "failed 1m1s ago: all is lost")
	f.Nodes = nil
	require.Contains(t, f.text(), "1 nodes take part, 1 wait, 0 are redundant: too many to be listed")
}

func TestAJobWhoseLeaderHasShownNothingYetIsSaidToBeBeginning(t *testing.T) {
	f := frame{View: rdzv.View{Summary: rdzv.Summary{Min: 2, Max: 3}}, at: "h:1", job: "j"}
	require.Equal(t, "job j at h:1, for 0s: it is just beginning, and its leader has yet to show who takes part\n", f.text())
	require.Equal(t, 7500*time.Millisecond, patience(f.View), "of the usual settings")
	f.silent = patience(f.View)
	require.Contains(t, f.text(), "\nit has said nothing for 8s\n")
	f.Summary.Nodes = 2 // too many to be shown: what the settings are is not known
	require.NotContains(t, f.text(), "just beginning")
	require.Contains(t, f.text(), "\nrestarts: 0 of 0\n")
}

func TestAFixedNumberOfNodesIsSaidOnce(t *testing.T) {
	f := aFrame()
	f.Min, f.Max = 2, 2
	f.Summary.Nodes = 2
	require.Equal(t, "round 3 is complete with 2 of 2 nodes since 1m1s", f.headline())
	f.Phase, f.Summary.Nodes = rdzv.Gathering, 1
	require.Contains(t, f.headline(), "needs 1 more (1 of 2 are there) since")
	f.Max = 4
	require.Contains(t, f.headline(), "needs 1 more (1 of 2 to 4 are there) since")
}

func TestWhatChangesBetweenTwoLooksIsALineEach(t *testing.T) {
	old, now := aFrame(), aFrame()
	changes := func(old, now frame) []string {
		b := &board{}
		b.remember(old)
		return b.changes(now)
	}
	require.Empty(t, changes(old, now.later(time.Minute)), "that time passes is no change")
	now.Round, now.Summary.Nodes, now.Summary.Restarts = 4, 3, 2
	now.Nodes = []rdzv.Seen{now.Nodes[0], seen("c", "participating", 1, 0), seen("f", "redundant", -1, 0)}
	now.Nodes[0].Failures = 1
	now.Ended = append([]rdzv.Parted{{ID: "b", How: rdzv.HasLeft, Why: "it was asked to"}}, now.Ended...)
	now.Leader, now.silent = "a", 7*time.Second
	require.Equal(t, []string{"b: left: it was asked to", "a worker of a has failed: restart 2 of 5", "c is in", "c has rank 1", "f comes, and is redundant",
		"a leads", "round 4 is complete with 3 of 2 to 4 nodes since 1m1s", "no word of the leader for 7s"}, changes(old, now))
	old = now
	now.Nodes = slices.Clone(now.Nodes)
	now.Nodes[0].Silent, now.store = 9*time.Second, "tcp://h-a:1"
	now.Nodes[1].Earlier = []rdzv.Parted{{ID: "c", How: rdzv.WasLost, Ago: 7 * time.Second}}
	require.Equal(t, []string{"no word of a for 9s; in 6s it is lost", "c; it is back: lost 7s ago", "the workers' store is tcp://h-a:1"}, changes(old, now))
	late := now
	late.Nodes = slices.Clone(now.Nodes)
	late.Nodes[0].Silent = 0
	require.Equal(t, []string{"there is word of a again"}, changes(now, late))
	now = old
	now.silent = 0
	require.Equal(t, []string{"there is word of a leader again"}, changes(old, now))
}

func TestWhoIsNotShownForAWhileIsNoNewsAgain(t *testing.T) {
	b, f := &board{}, aFrame()
	b.remember(f)
	less := aFrame()
	less.Nodes, less.Leader = less.Nodes[:2], "a" // who leads now has yet to hear of c
	require.Equal(t, []string{"a leads"}, b.changes(less))
	b.remember(less)
	f.Leader = "a"
	require.Empty(t, b.changes(f))
	b.remember(f)
	f.Ended = append([]rdzv.Parted{{ID: "c", How: rdzv.WasLost}}, f.Ended...)
	f.Nodes = f.Nodes[:2]
	require.Equal(t, []string{"c: lost"}, b.changes(f))
	b.remember(f)
	f.Nodes = append(f.Nodes, seen("c", "waiting", -1, 0))
	require.Equal(t, []string{"c comes, and is waiting"}, b.changes(f))
}

func TestWorkersThatHaveOtherRanksAreAChange(t *testing.T) {
	b, f := &board{}, aFrame()
	b.remember(f)
	between := aFrame()
	between.Nodes[1].First = -1
	require.Empty(t, b.changes(between), "between two rounds")
	b.remember(between)
	require.Empty(t, b.changes(f))
	f.Nodes[1].First, f.Nodes[1].Slots = 3, 3
	require.Equal(t, []string{"b has the workers 3-5"}, b.changes(f))
}

func TestAsJSONAFrameIsShownAgainWithWhateverHasChangedInItButTheTime(t *testing.T) {
	var out bytes.Buffer
	b, f := &board{w: &out, json: true}, aFrame()
	frames := func() int { return strings.Count(out.String(), "\n") }
	require.NoError(t, b.show(f))
	require.NoError(t, b.show(f.later(21548*time.Millisecond)))
	require.Equal(t, 1, frames())
	for i, change := range []func(){func() { f.Nodes[1].First = 7 }, func() { f.Nodes[1].Slots = 3 }, func() { f.Leader = "a" }, func() { f.Redundant++ }} {
		f.Nodes = slices.Clone(f.Nodes)
		change()
		require.NoError(t, b.show(f))
		require.Equal(t, 2+i, frames())
	}
	require.Contains(t, out.String(), `"first_worker":7`)
	f.Age = 21548 * time.Millisecond
	text, err := json.Marshal(f.asJSON())
	require.NoError(t, err)
	require.Contains(t, string(text), `"age_s":21.548,`)
}

func TestANarrowTerminalCutsTheNodeAndNotTheReasonOfItsEnd(t *testing.T) {
	f := aFrame()
	f.Ended[0].ID = strings.Repeat("long.", 20)
	text := strings.Join(fit(strings.Split(f.text(), "\n"), 80, 24), "\n")
	require.Contains(t, text, "lost   1m2s  no word from it for 15s (long.long.")
}

func TestOnATerminalAFrameTakesThePlaceOfTheLastAndFits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "screen")
	file, err := os.Create(name)
	require.NoError(t, err)
	defer file.Close()
	b := &board{w: file, terminal: file} // it has no size, so it is taken for 80 by 24
	f := aFrame()
	require.NoError(t, b.show(f))
	require.NoError(t, b.tick(f, time.Second))
	for i := range 100 {
		f.Nodes = append(f.Nodes, seen(fmt.Sprint("n", i), "waiting", -1, 0))
	}
	require.NoError(t, b.show(f))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	frames := strings.Split(string(text), "\x1b[J")
	require.Len(t, frames, 4)
	require.Contains(t, frames[2], "for 1h0m1s")
	require.True(t, strings.HasSuffix(frames[1], "\x1b[9A"), "%q", frames[1])
	require.Equal(t, 23, strings.Count(frames[3], "\n"))
	require.Contains(t, frames[3], "… and 87 lines more")
	for _, line := range strings.Split(frames[3], "\n") {
		require.LessOrEqual(t, len([]rune(line)), 80)
	}
}

// meets is a node of a job at a server, in this process.
func meets(t *testing.T, addr, job string, cfg rdzv.Config) (*rdzv.Rendezvous, *store.Server) {
	r, server, _ := meetsWith(t, nil, addr, job, cfg)
	return r, server
}

// meetsWith is meets in a store with TLS, if there is any. It gives the node's client, too.
func meetsWith(t *testing.T, secure *tls.Config, addr, job string, cfg rdzv.Config) (*rdzv.Rendezvous, *store.Server, store.Store) {
	server, err := store.Serve(store.ServerConfig{Addr: addr, TLS: secure})
	require.NoError(t, err)
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: addr, TLS: secure})
	require.NoError(t, err)
	cfg.Silence, cfg.LastCall = 3*time.Second, -1
	r, err := rdzv.Open(t.Context(), agent.RendezvousOf(job, st), cfg, rdzv.Node{ID: "me", Addr: "here", Slots: 3}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = r.Leave(context.Background(), "")
		_ = st.Close()
		_ = server.Close()
	})
	return r, server, st
}

func TestStatusTellsAJobFromWhatIsNone(t *testing.T) {
	at := proctest.Address()
	t.Setenv("WEFT_TOKEN", "")
	status := func(args ...string) (int, string, string) {
		return weft(t, append([]string{"status", "--rdzv-endpoint", at}, args...)...)
	}
	code, _, stderr := status()
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nothing listens at "+at)
	require.NotContains(t, stderr, "weft store")

	t.Setenv("WEFT_TOKEN", jobSecret)
	id, err := transport.IdentityFromToken(jobSecret, "j", "me", nil)
	require.NoError(t, err)
	proof, err := agent.Proof(jobSecret, "j")
	require.NoError(t, err)
	r, _, _ := meetsWith(t, id.StoreTLS(), at, "j", rdzv.Config{Min: 1, Proof: proof})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	code, stdout, stderr := status("--rdzv-id", "j", "--nnodes=7", "--max-restarts", "2")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "job j at "+at+", for ")
	require.Regexp(t, `\n0 +in +\d+s +<2s +0-2 +0 +here +me, leads\n$`, stdout)

	code, stdout, _ = status("--rdzv_id=j", "--json")
	require.Zero(t, code)
	var out jsonFrame
	require.NoError(t, json.Unmarshal([]byte(stdout), &out))
	require.Equal(t, []string{"j", at, "complete", "me"}, []string{out.Job, out.Endpoint, out.Phase, out.Leader})
	require.Equal(t, []jsonNode{{ID: "me", Addr: "here", State: "in", Since: out.Nodes[0].Since, Workers: 3, Heard: 2}}, out.Nodes)

	code, stdout, stderr = status("--rdzv-id", "k")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "another job's id")

	t.Setenv("WEFT_TOKEN", otherSecret)
	code, _, stderr = status("--rdzv-id", "j")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "the job there has another secret than this")
	t.Setenv("WEFT_TOKEN", "") // and without a secret
	at = proctest.Address()
	r, _, st := meetsWith(t, nil, at, "j", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	code, stdout, stderr = status("--rdzv-id", "k")
	require.Equal(t, 3, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no job k meets at "+at+"; there are j (--rdzv-id)")
	require.NoError(t, st.Set(t.Context(), "rdzv/x/summary", []byte("a summary")))
	code, _, stderr = status("--rdzv-id", "x")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is of another version of weft, or something else")
}

func TestStatusOfAJobWhoseLeaderIsSilentSaysSo(t *testing.T) {
	at := proctest.Address()
	server, err := store.Serve(store.ServerConfig{Addr: at})
	require.NoError(t, err)
	defer server.Close()
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: at})
	require.NoError(t, err)
	defer st.Close()
	c, crash := context.WithCancel(t.Context())
	r, err := rdzv.Open(c, agent.RendezvousOf("none", st), rdzv.Config{Min: 1, Silence: 3 * time.Second, LastCall: -1}, rdzv.Node{ID: "me", Slots: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	crash()
	for range r.News {
	}
	code, stdout, stderr := weft(t, "status", "--rdzv-endpoint", at)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "NO WORD of its leader for 2s")
	require.Contains(t, stdout, "me, leads")
}

func TestStatusOfAnEndpointThatIsNoStoreSaysSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() // it takes connections and says nothing
	code, _, stderr := weft(t, "status", "--rdzv-endpoint", l.Addr().String())
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "what listens there hangs up or says nothing")
}

func TestStatusExplainsAWrongCommandLine(t *testing.T) {
	for flags, want := range map[string]string{
		"":                                      "expected where the job meets: --rdzv-endpoint",
		"--rdzv-endpoint h me":                  "unknown command",
		"--rdzv-backend zoo --rdzv-endpoint h":  `expected store (or c10d), etcd or static, got "zoo"`,
		"--rdzv-backend etcd --rdzv-endpoint h": "needs --rdzv-id",
		"--rdzv-backend static":                 "missing: --master-addr",
		"--rdzv-endpoint localhost --token-file /nowhere/token":      "--token-file",
		"--rdzv-endpoint localhost --store-plain sometimes":          "--store-plain",
		"--rdzv-endpoint localhost --rdzv-conf keep_alive_timeout=x": "expected a number of seconds",
	} {
		code, stdout, stderr := weft(t, append([]string{"status"}, strings.Fields(flags)...)...)
		require.Equal(t, 2, code, "%s: %s", flags, stderr)
		require.Contains(t, stderr, want, flags)
		require.Empty(t, stdout)
	}
}

func TestAWatchTellsWhatHappensUntilTheJobIsOver(t *testing.T) {
	at := proctest.Address()
	r, _ := meets(t, at, "none", rdzv.Config{Min: 1, Max: 2, MaxRestarts: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	out := &proctest.Output{}
	codes := make(chan int, 1)
	go func() { codes <- execute([]string{"status", "--rdzv-endpoint", at, "--watch"}, out, out) }()
	out.Await(t, "round 0 is complete with 1 of 1 to 2 nodes", 1)
	st, err := store.Dial(t.Context(), store.ClientConfig{Addr: at})
	require.NoError(t, err)
	defer st.Close()
	other, err := rdzv.Open(t.Context(), agent.RendezvousOf("none", st), rdzv.Config{Min: 1, Max: 2, MaxRestarts: 1, Silence: 3 * time.Second, LastCall: -1},
		rdzv.Node{ID: "you", Addr: "there", Slots: 1}, nil)
	require.NoError(t, err)
	for a := range other.News {
		if a.Kind == rdzv.Place {
			break
		}
	}
	out.Await(t, "s: you has rank 1\n", 1)
	out.Await(t, "round 1 is complete with 2 of 1 to 2 nodes", 1)
	require.NoError(t, other.Leave(t.Context(), "had enough"))
	out.Await(t, "s: you: left: had enough\n", 1)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	r.Done()
	require.Equal(t, rdzv.Finished, (<-r.News).Kind)
	require.Zero(t, <-codes, out.String())
	require.Contains(t, out.String(), "ended well 0s ago: every node is done")
}

func TestWhoStopsToWatchDoesSoWithoutAnError(t *testing.T) {
	at := proctest.Address()
	r, _ := meets(t, at, "none", rdzv.Config{Min: 1})
	require.Equal(t, rdzv.Place, (<-r.News).Kind)
	out := &proctest.Output{}
	codes := make(chan int, 1)
	go func() { codes <- execute([]string{"status", "--rdzv-endpoint", at, "--watch", "--json"}, out, out) }()
	out.Await(t, `"phase":"complete"`, 1)
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
	require.Zero(t, <-codes, out.String())
	var one jsonFrame
	require.NoError(t, json.NewDecoder(bytes.NewBufferString(out.String())).Decode(&one))
}

// leaving is a store that can be gone.
type leaving struct {
	store.Store
	gone atomic.Bool
}

func (s *leaving) Check(c context.Context, keys ...string) (bool, error) {
	if s.gone.Load() {
		return false, store.ErrUnreachable
	}
	return s.Store.Check(c, keys...)
}

func TestAWatchEndsWhenTheStoreIsGoneAfterTheTimeThatItSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &leaving{Store: store.NewMemory()}
		defer st.Close()
		c, crash := context.WithCancel(t.Context())
		r, err := rdzv.Open(c, agent.RendezvousOf("j", st.Store), rdzv.Config{Min: 1, Silence: 18 * time.Second, LastCall: -1}, rdzv.Node{ID: "me", Slots: 1}, nil)
		require.NoError(t, err)
		require.Equal(t, rdzv.Place, (<-r.News).Kind)
		out := &proctest.Output{}
		w := &watching{at: "h:1", job: "j", out: newBoard(out, false), watch: true}
		var began time.Time
		go func() {
			crash()
			time.Sleep(time.Hour) // of silence, in which the store answers
			began = time.Now()
			st.gone.Store(true)
		}()
		err = w.run(t.Context(), func(context.Context) (store.Store, error) { return keptOpen{st}, nil })
		for range r.News {
		}
		var exit *exitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, codeFailed, exit.code)
		require.ErrorContains(t, err, "the store at h:1, where the job j meets, is gone")
		require.Contains(t, out.String(), "no word of the leader for 9s")
		require.Contains(t, out.String(), "the store at h:1 does not answer; unless it does, this ends in 1m12s")
		require.InDelta(t, 72, time.Since(began).Seconds(), 3)
	})
}

// keptOpen is a store that is not closed by who takes it for its own.
type keptOpen struct{ *leaving }

func (keptOpen) Close() error { return nil }

func TestWhyAnAddressIsNotReachedIsToldApart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	listens, nobody := l.Addr().String(), proctest.Address()
	dial := func(err error) error { // as store.Dial tells it
		return &store.Error{Op: "dial", Addr: "h:1", Err: fmt.Errorf("%w: %w", store.ErrUnreachable, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", err)})}
	}
	for _, x := range []struct {
		err      error
		at, want string
	}{
		{dial(syscall.EHOSTUNREACH), listens, "there is no route from this machine to " + listens},
		{dial(syscall.ENETUNREACH), listens, "there is no route from this machine to " + listens},
		{dial(syscall.ECONNREFUSED), listens, "nothing listens at " + listens + ", or not yet"},
		{dial(syscall.ETIMEDOUT), listens, listens + " does not answer: the host is down, or a firewall"},
		{dial(syscall.EPERM), listens, "this machine's firewall"},
		{dial(&net.DNSError{Name: "node0", IsNotFound: true}), listens, `the name "node0" is not known to this machine's name service, or not yet`},
		{dial(&net.DNSError{Name: "node0", Err: "server misbehaving"}), listens, `the name "node0" cannot be looked up: server misbehaving`},
		{store.ErrUnreachable, nobody, "nothing listens at " + nobody},
		{store.ErrUnreachable, listens, "something else"},
		{transport.ErrIdentity, nobody, "has another secret"},
		{tls.RecordHeaderError{}, listens, "does not speak TLS"},
	} {
		for _, secure := range []bool{false, true} {
			got := (&watching{at: x.at}).explain(x.err, secure, false).Error()
			if x.want == "something else" {
				x.want = map[bool]string{false: "hangs up or says nothing", true: "does not speak TLS with this secret"}[secure]
				require.Contains(t, got, x.want)
				x.want = "something else"
				continue
			}
			require.Contains(t, got, x.want)
			require.Equal(t, x.want == "does not speak TLS", strings.Contains(got, "does not speak TLS"), got)
		}
	}
}

func TestStatusAdvisesByItsOwnFlags(t *testing.T) {
	for _, x := range []struct {
		err            error
		secure, inEtcd bool
		want           string
	}{
		{transport.ErrIdentity, true, false, giveOwn},
		{tls.RecordHeaderError{}, true, false, "does not speak TLS"},
		{store.ErrUnreachable, true, false, "does not speak TLS"},
		{store.ErrUnreachable, false, false, "its store speaks TLS: " + giveOwn},
		{store.ErrForeign, false, false, giveOwn},
		{store.ErrProtocol, false, false, "does not answer as a store"},
		{store.ErrUnreachable, false, true, "2379"},
		{errors.New("remote error: tls: bad certificate"), true, true, "ca_cert="},
	} {
		advice := statusAdvice(x.err, x.secure, x.inEtcd)
		require.Contains(t, advice, x.want)
		for _, foreign := range []string{"weft store", "--tls", "dialect"} {
			require.NotContains(t, advice, foreign)
		}
	}
}
