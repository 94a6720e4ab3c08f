package elastic

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/elastic/internal/localaddr"
	"github.com/weft-project/weft/elastic/internal/pipe"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// ErrNoAgent is a worker's error when its agent has gone.
var ErrNoAgent = errors.New("elastic: the agent of this worker has ended")

// Place is a worker's place in the job, until Over is closed.
type Place struct {
	Rank       int `json:"rank"`
	World      int `json:"world"`
	LocalRank  int `json:"local_rank"`
	LocalWorld int `json:"local_world"`
	NodeRank   int `json:"node_rank"`
	Nodes      int `json:"nodes"`
	// Round is that of the nodes. Epoch grows with it, and when a worker was replaced in its place:
	// what workers of one epoch make together, those of another have no part in.
	Round int `json:"round"`
	Epoch int `json:"epoch"`
	// Source is the lowest rank of a worker whose node was in the round before, -1 if there is
	// none. The worker itself may be new: it may have been replaced.
	Source   int    `json:"source"`
	Restarts int    `json:"restarts"`  // of the whole job
	Store    string `json:"store"`     // host:port of the workers' store
	StoreTLS bool   `json:"store_tls"` // it has TLS: who speaks plain text there is no worker of the job
	Addr     string `json:"addr"`      // by which the other nodes reach this one
	// Over is closed when this is the place no more: there is another, or the agent has gone.
	Over <-chan struct{} `json:"-"`
	// Told is when this worker was told of it.
	Told time.Time `json:"-"`
}

// errPlain is that a worker would be a guest of its job's store.
var errPlain = errors.New("elastic: the workers' store has TLS, " +
	"and this worker has nothing to show that it is of the job")

// Membership is a worker's part in its job. It is safe for concurrent use.
type Membership struct {
	cfg   JoinConfig
	fixed bool // there is no agent: the place stays
	file  *os.File
	lines *bufio.Reader                                                        // of the file
	part  []byte                                                               // of a line that is not whole yet
	dial  func(c context.Context, cfg store.ClientConfig) (store.Store, error) // of the workers' store; tests replace it

	secure func() (*tls.Config, error) // what the environment names, made once

	hears sync.Mutex // held by who begins or ends to read the file

	mu    sync.Mutex
	done  chan struct{} // closed when nobody reads the file any more
	place Place
	over  chan struct{} // place.Over
	err   error
}

// JoinConfig is how a worker takes part. Its zero value works.
type JoinConfig struct {
	// StoreTLS is for the workers' store where that has TLS, as under weft run it mostly has. nil
	// means what the environment names (transport.IdentityFromEnv), as weft run sets it.
	StoreTLS *tls.Config
	// Grace is how long the context of an epoch of Each outlives its place; 0 means 3 s.
	Grace time.Duration
	// Patience is how long Each waits for another place after something has failed; 0 means a
	// minute.
	Patience time.Duration
}

func (cfg JoinConfig) populate() JoinConfig {
	cfg.Grace, cfg.Patience = cmp.Or(cfg.Grace, 3*time.Second), cmp.Or(cfg.Patience, time.Minute)
	return cfg
}

// Join is JoinWith with the defaults.
func Join(c context.Context) (*Membership, error) { return JoinWith(c, JoinConfig{}) }

func newMembership(cfg JoinConfig) *Membership {
	return &Membership{
		cfg: cfg.populate(), done: make(chan struct{}),
		dial: func(c context.Context, cfg store.ClientConfig) (store.Store, error) {
			return store.Dial(c, cfg)
		},
		secure: sync.OnceValues(tlsFromEnv),
	}
}

// JoinWith tells a worker its place, and every later one. A worker calls it once: what the agent
// says is read once. Under another launcher than weft run the place is that of the environment, and
// stays.
func JoinWith(c context.Context, cfg JoinConfig) (*Membership, error) {
	m := newMembership(cfg)
	fd, given := os.LookupEnv(AgentVariable)
	if !given {
		defer close(m.done)
		m.fixed = true
		place, err := fromEnvironment(os.LookupEnv)
		m.set(place)
		return m, err
	}
	number, id, _ := strings.Cut(fd, ":")
	n, err := strconv.Atoi(number)
	if err != nil || n < 3 {
		return nil, fmt.Errorf("elastic: $%s should be the number of a file, and is %q", AgentVariable, fd)
	}
	if m.file, err = pipe.Inherited(n, id, "agent"); err != nil {
		return nil, fmt.Errorf("elastic: file %d, by which the agent tells this worker its place: %w; what starts this program has to hand that file on, as Python's subprocess does with pass_fds=[%[1]d]", n, err)
	}
	m.lines = bufio.NewReader(m.file)
	first := make(chan struct{})
	go m.receivePlaces(m.done, first)
	select {
	case <-first:
	case <-m.done:
		return nil, m.Err()
	case <-c.Done():
		m.Close()
		return nil, context.Cause(c)
	}
	return m, nil
}

// receivePlaces takes places until the agent is gone, or this worker wants no more. It closes first
// when it has the first one.
func (m *Membership) receivePlaces(done, first chan struct{}) {
	defer close(done)
	for {
		line, err := m.lines.ReadBytes('\n')
		m.part = append(m.part, line...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil {
			m.fail(ErrNoAgent)
			return
		}
		var p Place
		if err := json.Unmarshal(m.part, &p); err != nil {
			m.fail(fmt.Errorf("elastic: what the agent says cannot be read: %w", err))
			return
		}
		m.part = nil
		m.set(p)
		if first != nil {
			close(first)
			first = nil
		}
	}
}

// ignore has this worker read no other place, if the one that it has is the latest that it has
// read. What it is told then it leaves in its pipe, where the agent sees it: whoever ends well
// without having read its place starts again in that one.
func (m *Membership) ignore(p Place) bool {
	m.hears.Lock()
	defer m.hears.Unlock()
	if m.file == nil || m.file.SetReadDeadline(time.Unix(1, 0)) != nil {
		return !p.over()
	}
	<-m.reads()
	if p.over() {
		m.listen()
		return false
	}
	return true
}

// hear undoes ignore.
func (m *Membership) hear() {
	m.hears.Lock()
	defer m.hears.Unlock()
	if m.file == nil {
		return
	}
	select {
	case <-m.reads():
		m.listen()
	default:
	}
}

// listen goes on reading where nobody reads. The lock is held.
func (m *Membership) listen() {
	if m.Err() != nil {
		return
	}
	_ = m.file.SetReadDeadline(time.Time{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done = make(chan struct{})
	go m.receivePlaces(m.done, nil)
}

// reads is closed when nobody reads the file.
func (m *Membership) reads() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// set takes a place, unless it is the one that is known: a worker that has just been started is
// told it again.
func (m *Membership) set(p Place) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.Over, p.Told = m.place.Over, m.place.Told
	if m.over != nil && p == m.place {
		return
	}
	if m.over != nil {
		close(m.over)
	}
	m.over = make(chan struct{})
	p.Over, p.Told = m.over, time.Now()
	m.place = p
}

func (m *Membership) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = cmp.Or(m.err, err)
	if m.over != nil {
		close(m.over)
		m.over = nil
	}
}

// Place is where the worker is now.
func (m *Membership) Place() Place {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.place
}

// Err is why there will be no other place, nil while there may.
func (m *Membership) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// Store is the store of the workers of a place's epoch, for them alone. It is the caller's to
// close.
func (m *Membership) Store(c context.Context, p Place) (store.Store, error) {
	secure := m.cfg.StoreTLS
	if p.StoreTLS && secure == nil {
		var err error
		if secure, err = m.secure(); err != nil {
			return nil, Final(fmt.Errorf("%w: %w", errPlain, err))
		}
	}
	client, err := m.dial(c, store.ClientConfig{Addr: p.Store, TLS: secure})
	if err != nil {
		return nil, err
	}
	return owned{EpochStore(client, p.Epoch), client}, nil
}

func tlsFromEnv() (*tls.Config, error) {
	id, err := transport.IdentityFromEnv("worker", slog.Default())
	if err != nil {
		return nil, err
	}
	return id.StoreTLS(), nil
}

// owned is a view that closes the store below it.
type owned struct {
	store.Store
	under store.Store
}

func (o owned) Close() error { return errors.Join(o.Store.Close(), o.under.Close()) }

// Close ends the membership here; the worker's process goes on. Should the agent tell this worker
// another place after that, it starts it again when it has ended well.
func (m *Membership) Close() error {
	m.fail(store.ErrClosed)
	if m.file == nil {
		return nil
	}
	m.hears.Lock()
	defer m.hears.Unlock()
	err := m.file.Close()
	<-m.reads()
	return err
}

// fromEnvironment is the place that torchrun's variables tell.
func fromEnvironment(lookup func(string) (string, bool)) (Place, error) {
	var errs []error
	number := func(name string) int {
		v, _ := lookup(name)
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			errs = append(errs, fmt.Errorf("$%s should be a number, and is %q", name, v))
		}
		return n
	}
	p := Place{
		Rank: number("RANK"), World: number("WORLD_SIZE"), LocalRank: number("LOCAL_RANK"), LocalWorld: number("LOCAL_WORLD_SIZE"),
		NodeRank: number("GROUP_RANK"), Nodes: number("GROUP_WORLD_SIZE"), Source: -1, Restarts: number("TORCHELASTIC_RESTART_COUNT"),
	}
	host, _ := lookup("MASTER_ADDR")
	port, _ := lookup("MASTER_PORT")
	p.Store = net.JoinHostPort(host, port)
	p.Addr = localaddr.Towards(p.Store)
	if host == "" || port == "" {
		errs = append(errs, errors.New("$MASTER_ADDR and $MASTER_PORT are not set"))
	}
	if errs != nil {
		return p, fmt.Errorf("elastic: start the program with weft run, or with torchrun's variables: %w", errors.Join(errs...))
	}
	return p, nil
}
