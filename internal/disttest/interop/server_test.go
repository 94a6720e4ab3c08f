//go:build interop

package interop

import (
	"fmt"
	"math/rand/v2"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	weft "github.com/weft-project/weft/store"
)

// server is a port of 127.0.0.1 at which PyTorch's clients find a store.
type server struct{ port int }

// theirs starts a server of PyTorch's. named are more arguments of TCPStore.
func (p *torch) theirs(t *testing.T, named map[string]any) server {
	t.Helper()
	all := map[string]any{"is_master": true, "wait_for_workers": false}
	for k, v := range named {
		all[k] = v
	}
	s := p.open(t, "TCPStore", []any{"127.0.0.1", 0}, all)
	port, err := strconv.Atoi(text(s.read(t, "port")))
	require.NoError(t, err)
	return server{port}
}

// ours starts a server of ours.
func (p *torch) ours(t *testing.T) server {
	t.Helper()
	s, err := weft.Serve(weft.ServerConfig{Dialect: p.dialect(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return server{portOf(t, s.Addr())}
}

func portOf(t *testing.T, addr string) int {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}

func (s server) addr() string { return fmt.Sprint("127.0.0.1:", s.port) }

// client is one of PyTorch's.
func (p *torch) client(t *testing.T, s server, named map[string]any) store {
	t.Helper()
	all := map[string]any{"is_master": false, "wait_for_workers": false}
	for k, v := range named {
		all[k] = v
	}
	return p.open(t, "TCPStore", []any{"127.0.0.1", s.port}, all)
}

// step is a call of one of a few clients.
type step struct {
	who    int
	method string
	args   []any
}

func (s step) String() string { return fmt.Sprintf("%d: %s%v", s.who, s.method, s.args) }

// transcript is what the steps give at a server.
func (p *torch) transcript(t *testing.T, at server, steps []step) []string {
	t.Helper()
	clients := map[int]store{}
	var all []string
	for _, x := range steps {
		c, there := clients[x.who]
		if !there {
			c = p.client(t, at, nil)
			clients[x.who] = c
		}
		a := c.try(t, x.method, x.args...)
		if keys, ok := a.Value.([]any); ok && x.method == "list_keys" { // in no order
			slices.SortFunc(keys, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
		all = append(all, x.String()+" = "+outcome(a))
		if a.Error == "" && a.Value == nil { // it may not have been answered, so the others must wait until the server has had it
			c.call(t, "num_keys")
		}
	}
	return all
}

var place = regexp.MustCompile(`\[[^]]*\]:\d+|127\.0\.0\.1:\d+|fd=\d+`)

// outcome is an answer without what differs from run to run. Of errors but timeouts, whose texts
// users search for, it is the type.
func outcome(a answer) string {
	first, _, _ := strings.Cut(a.Error, "\n")
	switch {
	case a.Type == "":
		return text(a.Value)
	case strings.Contains(strings.ToLower(first), "timeout"):
		return a.Type + ": " + place.ReplaceAllString(first, "…")
	}
	return a.Type
}

// everyCall has every operation that the release knows, and every edge that has an answer.
func (p *torch) everyCall() []step {
	steps := []step{
		{0, "num_keys", nil},
		{0, "set", []any{"k", "v"}}, {1, "get", []any{"k"}}, {0, "set", []any{"k", ""}}, {1, "get", []any{"k"}},
		{0, "set", []any{"\x00\xff ünï", "\x00\x01\xfe\xff"}}, {1, "get", []any{"\x00\xff ünï"}},
		{0, "set", []any{"", "of nobody"}}, {1, "get", []any{""}},
		{0, "add", []any{"n", 5}}, {1, "add", []any{"n", -7}}, {0, "get", []any{"n"}},
		{0, "set", []any{"n", " 12xyz"}}, {0, "add", []any{"n", 1}},
		{0, "set", []any{"n", "9223372036854775807"}}, {0, "add", []any{"n", 1}},
		{0, "compare_set", []any{"c", "wrong", "x"}}, {0, "num_keys", nil}, {0, "compare_set", []any{"c", "", "x"}},
		{1, "compare_set", []any{"c", "wrong", "y"}}, {1, "compare_set", []any{"c", "x", "y"}}, {0, "get", []any{"c"}},
		{0, "compare_set", []any{"k", "", "again"}}, {0, "get", []any{"k"}},
		{0, "delete_key", []any{"k"}}, {1, "delete_key", []any{"k"}}, {0, "num_keys", nil},
		{0, "wait", []any{[]string{"n", "c", "n"}}}, {0, "wait", []any{[]string{}}},
		{2, "wait", []any{[]string{"missing", "n"}, seconds(0.1)}},
		{0, "set", []any{"long", strings.Repeat("v", 3<<20)}}, {1, "compare_set", []any{"long", "x", "y"}},
		{3, "set", []any{"text", "none"}}, {3, "add", []any{"text", 1}}, {0, "get", []any{"text"}},
	}
	if p.can("append") {
		steps = append(steps, []step{
			{0, "has_extended_api", nil}, {0, "append", []any{"a", "po"}}, {1, "append", []any{"a", "tato"}}, {0, "get", []any{"a"}},
			{0, "multi_set", []any{[]string{"x", "y", "x"}, []string{"1", "2", "3"}}}, {1, "multi_get", []any{[]string{"y", "x", "y"}}},
			{0, "multi_get", []any{[]string{}}}, {0, "multi_set", []any{[]string{}, []string{}}},
			{2, "get", []any{"c"}}, {2, "wait", []any{[]string{"missing"}, seconds(0.1)}}, {2, "get", []any{"c"}}, {0, "num_keys", nil},
		}...)
	}
	if p.can("check") {
		steps = append(steps, []step{
			{0, "check", []any{[]string{"x", "y"}}}, {0, "check", []any{[]string{"x", "missing"}}}, {0, "check", []any{[]string{}}},
		}...)
	}
	if p.can("list_keys") {
		steps = append([]step{{0, "list_keys", nil}}, append(steps, step{1, "list_keys", nil})...)
	}
	if p.can("barrier") {
		steps = append(steps, []step{
			{0, "barrier", []any{"b", 1}}, {1, "barrier", []any{"b", 1}}, {0, "get", []any{"b"}}, {0, "barrier", []any{"of nobody", 0}},
			{2, "barrier", []any{"late", 2, seconds(0.1)}}, {2, "get", []any{"c"}}, {1, "barrier", []any{"late", 2}}, {0, "get", []any{"late"}},
			{4, "barrier", []any{"text", 1}}, {0, "get", []any{"text"}},
		}...)
	}
	if p.can("queue_len") {
		steps = append(steps, []step{
			{0, "queue_len", []any{"q"}}, {0, "queue_push", []any{"q", "first"}}, {1, "queue_push", []any{"q", ""}}, {0, "queue_len", []any{"q"}},
			{0, "check", []any{[]string{"q"}}}, {0, "num_keys", nil}, {1, "queue_pop", []any{"q"}}, {1, "queue_pop", []any{"q", false}},
			{0, "queue_pop", []any{"q", false}}, {0, "queue_len", []any{"q"}}, {0, "check", []any{[]string{"q"}}},
			{0, "set_timeout", []any{seconds(0.1)}}, {0, "queue_pop", []any{"q"}},
		}...)
	}
	return steps
}

func TestPyTorchsClientGetsTheSameAnswersFromOurServerAsFromItsOwn(t *testing.T) {
	p := start(t)
	steps := p.everyCall()
	want, got := p.transcript(t, p.theirs(t, nil), steps), p.transcript(t, p.ours(t), steps)
	for i := range want {
		require.Equal(t, want[i], got[i])
		t.Logf("%.150q", got[i])
	}
}

func TestRandomCallsOfPyTorchsClientsGetTheSameAnswersFromOurServer(t *testing.T) {
	p := start(t)
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		var steps []step
		for range 200 {
			steps = append(steps, p.anyCall(r)...)
		}
		want, got := p.transcript(t, p.theirs(t, nil), steps), p.transcript(t, p.ours(t), steps)
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// anyCall is a call that neither waits nor fails: values are numbers.
func (p *torch) anyCall(r *rand.Rand) []step {
	who, key, value := r.IntN(3), string(rune('a'+r.IntN(4))), func() string { return strconv.Itoa(r.IntN(3)) }
	all := [][]step{
		{{who, "set", []any{key, value()}}},
		{{who, "add", []any{key, r.IntN(5)}}},
		{{who, "compare_set", []any{key, value(), value()}}},
		{{who, "delete_key", []any{key}}},
		{{who, "num_keys", nil}},
		{{who, "add", []any{key, 0}}, {(who + 1) % 3, "get", []any{key}}},
	}
	if p.can("append") {
		all = append(all, [][]step{
			{{who, "append", []any{key, value()}}},
			{{who, "multi_set", []any{[]string{key, "a"}, []string{value(), value()}}}},
			{{who, "multi_set", []any{[]string{"b", "a"}, []string{value(), value()}}}, {who, "multi_get", []any{[]string{"a", "b", "a"}}}},
		}...)
	}
	if p.can("queue_len") {
		queue := "queue " + key
		all = append(all, [][]step{
			{{who, "queue_push", []any{queue, value()}}}, {{who, "queue_pop", []any{queue, false}}}, {{who, "queue_len", []any{queue}}},
			{{who, "check", []any{[]string{queue}}}}, {{who, "delete_key", []any{queue}}},
		}...)
	}
	if p.can("list_keys") {
		all = append(all, []step{{who, "list_keys", nil}})
	}
	if p.can("barrier") {
		all = append(all, []step{{who, "barrier", []any{key, 1}}})
	}
	return all[r.IntN(len(all))]
}

func TestPyTorchsClientsWakeEachOtherAndOursThroughOurServer(t *testing.T) {
	p := start(t)
	at := p.ours(t)
	a, b := p.client(t, at, nil), p.client(t, at, nil)
	our := p.dial(t, at)
	c := t.Context()
	theirs := a.begin(t, "get", "from ours")
	require.NoError(t, our.Set(c, "from ours", []byte("1")))
	require.Equal(t, "1", text((<-theirs).Value))
	theirs = a.begin(t, "wait", []string{"from b", "from ours"})
	b.call(t, "set", "from b", "2")
	require.Empty(t, (<-theirs).Error)
	got := make(chan string)
	go func() {
		v, err := our.Get(c, "from a")
		got <- fmt.Sprint(string(v), err)
	}()
	a.call(t, "compare_set", "from a", "", "3")
	require.Equal(t, "3<nil>", <-got)
}

func TestPyTorchsClientsThatKnowTheirNumberCountThemselvesInOnOurServer(t *testing.T) {
	p := start(t)
	at := p.ours(t)
	a := p.client(t, at, map[string]any{"world_size": 2, "wait_for_workers": true})
	require.Equal(t, "1", text(a.call(t, "num_keys")), "init/")
	our, err := weft.Dial(t.Context(), weft.ClientConfig{Addr: at.addr(), WorldSize: 2, WaitForWorkers: true, Dialect: p.dialect(t)})
	require.NoError(t, err)
	defer our.Close()
	require.Equal(t, "1", text(a.call(t, "num_keys")))
	keys, err := our.ListKeys(t.Context())
	require.NoError(t, err)
	require.Empty(t, keys)
}

// cancels says whether a client takes back a wait whose time is over: the server's answer to that
// is the last word.
func (p *torch) cancels(t *testing.T) bool {
	t.Helper()
	at, tapes := between(t, p.theirs(t, nil))
	a := p.client(t, at, nil).try(t, "wait", []string{"never"}, seconds(0.1))
	require.NotEmpty(t, a.Error)
	turns := spoken(tapes()).turns()
	return len(turns)%2 == 0 && turns[len(turns)-1][0] == 1
}

// TestATimeoutDoesToPyTorchsClientWhatItDoesWithItsOwnServer has the defect of clients that do not
// cancel their waits: they take the late answer of one for that of the next, which returns although
// its key is not there.
func TestATimeoutDoesToPyTorchsClientWhatItDoesWithItsOwnServer(t *testing.T) {
	p := start(t)
	cancels := p.cancels(t)
	tell := func(at server) []string {
		a, b := p.client(t, at, nil), p.client(t, at, nil)
		all := []string{
			outcome(a.try(t, "wait", []string{"late"}, seconds(0.1))),
			outcome(b.try(t, "set", "late", "v")),
			outcome(b.try(t, "get", "late")), // after it the answer to a is on its way
		}
		time.Sleep(100 * time.Millisecond)
		all = append(all, outcome(a.try(t, "wait", []string{"never"}, seconds(0.1))), outcome(b.try(t, "get", "late")))
		if cancels {
			all = append(all, outcome(a.try(t, "get", "late")), outcome(a.try(t, "add", "n", 3)))
		}
		return all
	}
	theirs, ours := tell(p.theirs(t, nil)), tell(p.ours(t))
	require.Equal(t, theirs, ours)
	t.Logf("%q", ours)
	require.Equal(t, cancels, ours[3] != "<nil>", "%q", ours)
}

func TestAClientThatClonesItselfWaitsOnOurServerInBoth(t *testing.T) {
	p := start(t)
	at := p.ours(t)
	a := p.client(t, at, nil)
	if !p.can("clone") {
		require.Equal(t, "AttributeError", a.try(t, "clone").Type)
		return
	}
	b := a.clone(t)
	got := a.begin(t, "get", "from the clone")
	b.call(t, "set", "from the clone", "1")
	require.Equal(t, "1", text((<-got).Value))
	got = b.begin(t, "get", "from the first")
	a.call(t, "set", "from the first", "2")
	require.Equal(t, "2", text((<-got).Value))
}

// TestClientsOfPyTorchAndOursMeetAtABarrier has the servers where an ADD to a barrier's key lets go
// whoever waits there.
func TestClientsOfPyTorchAndOursMeetAtABarrier(t *testing.T) {
	p := start(t)
	all := map[string]server{"ours": p.ours(t)}
	for name, named := range p.servers() {
		all[name] = p.theirs(t, named)
	}
	for name, at := range all {
		t.Run(name, func(t *testing.T) {
			a, b, our := p.client(t, at, nil), p.client(t, at, nil), p.dial(t, at)
			if !p.can("barrier") {
				require.Equal(t, "AttributeError", a.try(t, "barrier", "k", 1).Type)
				require.NoError(t, our.Barrier(t.Context(), "k", 1))
				return
			}
			come := func(key, n string) {
				for got := ""; got != n; {
					v, err := our.Get(t.Context(), key)
					require.NoError(t, err)
					got = string(v)
				}
			}
			theirs := a.begin(t, "barrier", "ours last", 2)
			come("ours last", "1")
			require.NoError(t, our.Barrier(t.Context(), "ours last", 2))
			require.Empty(t, (<-theirs).Error)

			theirs, ours := a.begin(t, "barrier", "theirs last", 3), make(chan error, 1)
			come("theirs last", "1")
			go func() { ours <- our.Barrier(t.Context(), "theirs last", 3) }()
			come("theirs last", "2")
			for range 20 { // whoever has been let go is heard of meanwhile
				b.call(t, "num_keys")
			}
			require.Empty(t, theirs, "it passed though one of three was not there")
			require.Empty(t, ours, "it passed though one of three was not there")
			b.call(t, "barrier", "theirs last", 3)
			require.NoError(t, <-ours)
			require.Empty(t, (<-theirs).Error)
		})
	}
}
