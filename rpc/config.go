package rpc

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/rpc/internal/membership"
	"github.com/weft-project/weft/rpc/internal/tracing"
	"github.com/weft-project/weft/rpc/trace"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// Config of a worker. The zero value joins the job that the environment describes (as weft run and
// torchrun set it), serves nothing, and has the CPU alone.
type Config struct {
	// Name of the worker, unique in the job: letters, digits, "_", ":" and "-", under 128 bytes.
	// Default "worker{rank}".
	Name string
	// Init says where the store is: "env://" (the default), "tcp://host:port?rank=R&world_size=N",
	// "file:///path?…".
	Init string
	// Schemes are further ones for Init: {"etcd": etcd.Open} takes
	// "etcd://h1,h2,h3/job?rank=R&world_size=N".
	Schemes map[string]store.Opener
	// Store is used instead of Init where it is set, and needs Rank and WorldSize. The store stays
	// the caller's. Beside Init, Rank and WorldSize are this worker's place where WorldSize is not
	// 0, unless the URL has one; the environment is not asked for it then.
	Store     store.Store
	Rank      int
	WorldSize int
	// Dynamic makes, or joins, a world that workers join and leave while others run, in a Store of
	// its own (or a store.Prefix). WorldSize is 0 then, and Rank the rank that is wanted, or 0 for
	// the lowest that is free.
	Dynamic bool
	// Functions that this worker serves.
	Functions []Function
	// Errors are the types of errors that travel whole, between workers that list them under the
	// same name: see ErrorType.
	Errors []TypedError
	// MaxRunning is how many calls this worker runs at a time; default 1024. A call that waits for
	// a nested one counts all the while, so a chain of calls that comes back here needs a place for
	// each of its visits: where all places are taken by calls that wait for such visits, they wait
	// until their deadline. Declare such functions with DefineAsync: a call whose future is pending
	// does not count. Fetching values, gradients and what keeps the job together never wait for a
	// place.
	MaxRunning int
	// MaxQueued is how many calls wait for their turn, default 2048; the peers take turns. Beyond
	// it callers get ErrBusy.
	MaxQueued int
	// Devices beside the CPU, and for each peer where this worker's tensors land there: by its name
	// (a Rank does not serve here).
	Devices    []device.Device
	DeviceMaps map[string]device.Map
	// Job is the job's id, the same for all its workers; default $TORCHELASTIC_RUN_ID, or NoJob.
	// Workers of different ids refuse each other, whatever secret they have. Not used where Network
	// is set.
	Job string
	// Token is the job's secret; default $WEFT_TOKEN, or what is in the file that $WEFT_TOKEN_FILE
	// names. A secret that "weft token" (transport.NewToken) did not make costs Join an argon2id,
	// and is refused where it is weak (transport.StrengthenToken). Not used where Network is set.
	Token string
	// Certificates of the user's own, instead of a Token: three files that may be renewed while the
	// job runs (transport.IdentityFromFiles). They name the job, this worker and, where they are to
	// bind it, its rank. Default, where Token is empty too, what CertificatesFromEnv finds. Not
	// used where Network is set.
	Certificates transport.IdentityFiles
	// Network makes the links; default QUIC with the identity that Certificates or Token give.
	Network transport.Network
	// Lanes that links may use, of transport.LaneNames; LaneQUIC serves where no other does.
	// Default $WEFT_LANES (separated by commas), or all. Not used where Network is set.
	Lanes []string
	// LendCopies keeps other workers of this host from seeing anything but what they were sent.
	// Large tensors that go to them are lent, where both processes see them, and there is no taking
	// back: without this, a worker that was lent memory can read what lies there later, too. It
	// costs a copy of each tensor. Default whether $WEFT_LEND_COPIES is 1. Not used where Network
	// is set.
	LendCopies bool
	// Listen is the address at which peers reach this worker; default "127.0.0.1:0". On several
	// machines give the address of the interface that the peers see.
	Listen string
	// PassLease is how long this worker keeps its part of a pass without word from the worker that
	// opened it; default 30 s.
	PassLease time.Duration
	// Timeout is the deadline of a call whose context has none; default 60 s, NoTimeout for none.
	Timeout time.Duration
	// JoinTimeout bounds Join where its context has no deadline; default 60 s.
	JoinTimeout time.Duration
	// Trace gets a span of every call that this worker makes or serves, until Close; the caller
	// ends the sink afterwards. Default: where $WEFT_TRACE names a folder, the file NAME.json in it
	// (of the last worker of that name), else none. A worker that was started after the job's Nth
	// restart writes NAME.restartN.json.
	Trace trace.Sink
	// Logger hears of refused and lost peers and of panics. Default slog.Default().
	Logger *slog.Logger
}

// TraceVariable names a folder into which every worker without Config.Trace writes its trace, as
// NAME.json, or NAME.restartN.json after the job's Nth restart; weft run --trace sets it.
const TraceVariable = tracing.TraceVariable

// NoTimeout lets calls take as long as they like.
const NoTimeout time.Duration = -1

const (
	defaultMaxRunning  = 1024
	defaultMaxQueued   = 2048
	defaultTimeout     = 60 * time.Second
	defaultJoinTimeout = 60 * time.Second
)

// prepared is a Config with its defaults, checked.
type prepared struct {
	Config
	serves   map[string]*handler
	errors   errorTypes
	devices  *device.Set
	succeeds bool   // who had this place before has ended
	apart    string // why this worker may see nobody in its store, "" if nothing is known

	// vouches says whether peers will take this worker for that; nil: they will
	vouches func(name string, rank int) error
}

// prepare fills in defaults and reports every violation at once. Where the store is still to be
// found, the rank and the world size are checked by place.
func (cfg Config) prepare() (*prepared, error) {
	p := &prepared{Config: cfg, serves: map[string]*handler{}}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format, args...))
	}
	if p.Name != "" && !membership.NameRule.MatchString(p.Name) {
		bad("worker name %q; expected 1 to 127 of A-Z a-z 0-9 _ : -", p.Name)
	}
	if p.Store == nil && p.Dynamic {
		bad("a dynamic world needs a Store")
	}
	if p.Store != nil || p.Dynamic {
		if err := p.checkPlace(); err != nil {
			bad("%w", err)
		}
	}
	for _, f := range append([]Function{gather, backwardAt}, p.Functions...) {
		if f == nil {
			bad("a function is nil")
			continue
		}
		h, err := f.served()
		switch {
		case err != nil:
			bad("%w", err)
		case p.serves[h.name] != nil:
			bad("function %q is listed twice", h.name)
		default:
			p.serves[h.name] = h
		}
	}
	if p.MaxRunning < 0 || p.MaxQueued < 0 {
		bad("at most %d calls running and %d waiting; expected positive numbers, or 0 for the defaults", p.MaxRunning, p.MaxQueued)
	}
	p.MaxRunning, p.MaxQueued = cmp.Or(p.MaxRunning, defaultMaxRunning), cmp.Or(p.MaxQueued, defaultMaxQueued)
	for _, err := range p.errors.list(p.Errors) {
		bad("%w", err)
	}
	set, err := device.NewSet(p.Devices...)
	if err != nil {
		bad("%w", err)
	}
	p.devices = set
	for name, m := range p.DeviceMaps {
		if !membership.NameRule.MatchString(name) {
			bad("device map for %q; expected a worker's name", name)
		} else if err := m.Validate(set.IDs(), slices.Collect(maps.Values(m))); err != nil { // where the peer has those devices
			bad("device map for %s: %w", name, err)
		}
	}
	if p.Timeout == 0 {
		p.Timeout = defaultTimeout
	}
	if p.PassLease < 0 {
		bad("a lease of %v for passes; expected a positive one, or 0 for the default", p.PassLease)
	}
	if p.Timeout < 0 && p.Timeout != NoTimeout {
		bad("timeout %v; expected a positive one, or NoTimeout", p.Timeout)
	}
	if p.JoinTimeout < 0 {
		bad("join timeout %v; expected a positive one", p.JoinTimeout)
	}
	p.JoinTimeout, p.Listen = cmp.Or(p.JoinTimeout, defaultJoinTimeout), cmp.Or(p.Listen, "127.0.0.1:0")
	if _, _, err := net.SplitHostPort(p.Listen); err != nil {
		bad("listen at %q; expected host:port, where port 0 is any that is free", p.Listen)
	}
	if p.Logger == nil {
		p.Logger = slog.Default()
	}
	for _, err := range []error{p.allowLanes(), p.lendCopies()} {
		if err != nil {
			bad("%w", err)
		}
	}
	if _, err := p.identity(); err != nil {
		bad("%w", err)
	}
	if errs != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
	}
	return p, nil
}

// checkPlace checks the rank and the world size, and fills in the name that follows from them.
func (p *prepared) checkPlace() error {
	if p.Dynamic {
		if p.WorldSize != 0 || p.Rank < 0 || p.Rank >= membership.MaxWorld {
			return fmt.Errorf("world size %d, rank %d in a dynamic world; expected 0, and 0 to %d", p.WorldSize, p.Rank, membership.MaxWorld-1)
		}
		return nil
	}
	if p.WorldSize < 1 || p.WorldSize > membership.MaxWorld {
		return fmt.Errorf("world size %d; expected 1 to %d", p.WorldSize, membership.MaxWorld)
	}
	if p.Rank < 0 || p.Rank >= p.WorldSize {
		return fmt.Errorf("rank %d; expected 0 to %d for a world of %d", p.Rank, p.WorldSize-1, p.WorldSize)
	}
	if p.Name == "" {
		p.Name = membership.NameOf(p.Rank)
	}
	return nil
}
