package gpus

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/device/cuda/nccl"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Mode says whether a group uses NCCL. All members say the same.
type Mode int

const (
	// Auto uses it where all members can; elsewhere Open fails with ErrWithout and the cause.
	Auto Mode = iota
	// Off has Open fail with ErrWithout.
	Off
	// Must has Open fail with the cause where a member cannot.
	Must
)

func (m Mode) String() string {
	if m < Auto || m > Must {
		return fmt.Sprintf("Mode(%d)", int(m))
	}
	return [...]string{"Auto", "Off", "Must"}[m]
}

// Config says how a communicator is made. Its zero value works.
type Config struct {
	NCCL    Mode
	Library *nccl.Library // nil: nccl.Open's
	Comm    nccl.Config
	Poll    time.Duration // how often NCCL is asked for errors; 0: every 20 ms

	lacks         error // why this member cannot use NCCL
	half, oneShot int   // of a window, in tests; 0: as they are
}

func (cfg Config) mistakes() error {
	var errs []error
	if cfg.NCCL < Auto || cfg.NCCL > Must {
		errs = append(errs, fmt.Errorf("NCCL is %v; expected Auto, Off or Must", cfg.NCCL))
	}
	if cfg.Poll < 0 {
		errs = append(errs, fmt.Errorf("a Poll of %v; expected 0 or more", cfg.Poll))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", collective.ErrArguments, err)
	}
	return nil
}

// hello is what members tell one another first.
type hello struct {
	Mode    Mode
	Version int
	GPU     string
	Problem string
	Nonce   string // the first member's names the communicator
}

// offer is what each says before NCCL is called; the id is the first member's.
type offer struct {
	ID      []byte
	Problem string
}

// Open makes a communicator of a group's members, on this member's GPU. All members call it, one
// time after another for one group. It fails on all, or on none. The group lives on.
func Open(c context.Context, g *collective.Group, d *Device, cfg Config) (*Comm, error) {
	if cfg.Poll == 0 {
		cfg.Poll = 20 * time.Millisecond
	}
	if err := given(c, g, d); err != nil {
		return nil, fmt.Errorf("gpus: open NCCL: %w", err)
	}
	m, err := open(c, g, d, cfg)
	if err != nil {
		return nil, fmt.Errorf("gpus: open NCCL in group %q: %w", g.Name(), err)
	}
	return m, nil
}

// given says whether there are a group and a GPU. Where there is no GPU all members hear of it.
func given(c context.Context, g *collective.Group, d *Device) error {
	if g == nil {
		return fmt.Errorf("%w: no group", collective.ErrArguments)
	}
	if d == nil {
		err := fmt.Errorf("%w: no GPU; On gives one", collective.ErrArguments)
		g.Abandon(collective.Scope(c, scope), err)
		return err
	}
	return nil
}

func open(c context.Context, g *collective.Group, d *Device, cfg Config) (*Comm, error) {
	mine, own := cfg.hello(d)
	all, err := collective.Agree(collective.Scope(c, scope), g, mine)
	if err != nil {
		return nil, err
	}
	if err := compatible(g, all, own); err != nil {
		if cfg.NCCL != Must {
			err = fmt.Errorf("%w: %w", ErrWithout, err)
		}
		return nil, err
	}
	m := newComm(g, d, cfg, all[0].Nonce)
	if err = m.listen(); err == nil {
		err = m.make(c)
	}
	if err != nil {
		m.stop()
		return nil, err
	}
	go m.watch()
	return m, nil
}

// scope is that of what Open agrees on.
const scope = "nccl"

var errUnlent = errors.New("the GPU's driver lends it to no other library")

// hello is what this member says, and why it cannot.
func (cfg *Config) hello(d *Device) (hello, error) {
	h := hello{Mode: cfg.NCCL}
	err := cfg.mistakes()
	if err == nil && cfg.NCCL != Off {
		if err = cfg.lacks; err == nil && d.gpu == nil {
			err = errUnlent
		}
	}
	if err == nil && cfg.NCCL != Off && cfg.Library == nil {
		cfg.Library, err = nccl.Open()
	}
	if err == nil && cfg.NCCL != Off {
		var nonce [8]byte
		_, err = rand.Read(nonce[:])
		h.Version, h.GPU, h.Nonce = cfg.Library.Version(), d.gpu.Info().UUID, hex.EncodeToString(nonce[:])
	}
	if err != nil {
		h.Problem = cut(err.Error())
	}
	return h, err
}

// compatible says what is wrong with what the members said: the same on all of them.
func compatible(g *collective.Group, all []hello, own error) error {
	name := func(r int) string { return g.Members()[r].Worker }
	var problems []string
	on := map[string]int{}
	for r, h := range all {
		if h.Mode != all[0].Mode {
			return fmt.Errorf("%w: NCCL is %v on %s and %v on %s; all members say the same", collective.ErrArguments, all[0].Mode, name(0), h.Mode, name(r))
		}
		if h.Problem != "" {
			problems = append(problems, name(r)+": "+h.Problem)
		}
	}
	if own != nil {
		return own
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %s", ErrFailed, strings.Join(problems, "; "))
	}
	if all[0].Mode == Off {
		return errors.New("it is off")
	}
	for r, h := range all {
		if h.Version/100 != all[0].Version/100 {
			return fmt.Errorf("%w: %s has %s, and %s has %s", ErrVersions, name(0), nccl.Version(all[0].Version), name(r), nccl.Version(h.Version))
		}
		if q, taken := on[h.GPU]; taken {
			return &SharedGPUError{Ranks: [2]int{q, r}, Workers: [2]string{name(q), name(r)}, GPU: h.GPU}
		}
		on[h.GPU] = r
	}
	return nil
}

// listen hears the alarms of other members.
func (m *Comm) listen() (err error) {
	m.deaf, err = rpc.OnPost(m.g.Worker(), "nccl/"+m.name, func(from rpc.WorkerInfo, header []byte, tensors []transport.Tensor) {
		for _, t := range tensors {
			_ = t.Buf.Release()
		}
		for _, member := range m.g.Members() {
			if member.Worker == from.Name {
				var a alarm
				err := a.decode(header)
				if err == nil {
					err = a.err()
				}
				m.fail(&FailedError{Rank: member.Rank, Worker: member.Worker, Cause: err})
			}
		}
	})
	return err
}

// make joins NCCL's communicator with all members.
func (m *Comm) make(c context.Context) error {
	var mine offer
	if m.g.Rank() == 0 {
		id, err := m.cfg.Library.NewID()
		mine.ID = id[:]
		if err != nil {
			mine = offer{Problem: cut(err.Error())}
		}
	}
	all, err := collective.Agree(collective.Scope(c, scope), m.g, mine)
	if err != nil {
		return err
	}
	var id nccl.ID
	if all[0].Problem != "" || len(all[0].ID) != len(id) {
		return fmt.Errorf("%w: %s makes no id: %s", ErrFailed, m.g.Members()[0].Worker, all[0].Problem)
	}
	copy(id[:], all[0].ID)
	failed := m.joinNCCL(c, id)
	if failed != nil {
		_ = m.broken(failed)
	}
	return m.outcome(c, failed)
}

// made is what came of joining.
type made struct {
	comm *nccl.Comm
	err  error
}

// joinNCCL joins on a thread of its own, which is given up where it does not return in time.
func (m *Comm) joinNCCL(c context.Context, id nccl.ID) error {
	life, cancel := context.WithCancelCause(m.life)
	defer cancel(nil)
	stop := context.AfterFunc(c, func() { cancel(context.Cause(c)) })
	defer stop()
	got := make(chan made)
	go func() {
		comm, err := m.cfg.Library.Init(life, m.d.gpu, m.g.Size(), id, m.g.Rank(), m.cfg.Comm)
		select {
		case got <- made{comm, err}:
		case <-m.life.Done(): // nobody waits any more
			if comm != nil {
				_ = comm.Abort()
			}
		}
	}()
	select {
	case it := <-got:
		if it.err == nil {
			m.take(it.comm)
		}
		return it.err
	case <-life.Done():
		cause := context.Cause(life)
		_ = m.broken(cause) // also has the goroutine above give up
		return cause
	}
}

// take keeps NCCL's communicator, unless this one has ended.
func (m *Comm) take(comm *nccl.Comm) {
	m.mu.Lock()
	ended := m.Err() != nil
	if !ended {
		m.comm = comm
	}
	m.mu.Unlock()
	if ended {
		_ = comm.Abort()
	}
}

// patience is for how long members are waited for that have been told to give up.
const patience = 10 * time.Second

// outcome is the same on all members: NCCL's communicator is there, or it is on none.
func (m *Comm) outcome(c context.Context, failed error) error {
	c, cancel := context.WithTimeout(context.WithoutCancel(c), patience)
	defer cancel()
	var mine string
	if failed != nil {
		mine = cut(failed.Error())
	}
	all, err := collective.Agree(collective.Scope(c, scope), m.g, mine)
	if m.Err() != nil {
		return m.Err()
	}
	for r, problem := range all {
		if problem != "" && err == nil {
			err = &FailedError{Rank: r, Worker: m.g.Members()[r].Worker, Cause: errors.New(problem)}
		}
	}
	if err != nil {
		_ = m.broken(err)
	}
	return err
}
