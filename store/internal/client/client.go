package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/state"
	"github.com/weft-project/weft/store/internal/wire"
)

// initKey counts the clients that have joined, in PyTorch's stores and here. It is the one key
// without a slash.
const initKey = "init/"

// Config says which server to use and how.
type Config struct {
	Addr string // host:port of the server; required

	// WorldSize is how many clients the store will have; more than 0 makes Dial announce this one
	// to the others, as every client of PyTorch does. It costs one key, which NumKeys counts. 0:
	// unknown.
	WorldSize int
	// WaitForWorkers makes Dial return only when all WorldSize clients have announced themselves.
	// PyTorch does it where the server is, and nowhere else.
	WaitForWorkers bool

	// Dialect is the server's. DialectAuto tells servers of PyTorch 2.2 and later (Weft's are that
	// too) and of 1.13 and 2.0, which speak alike, apart; 2.1 must be named.
	Dialect wire.Dialect

	// TLS, if not nil, is for the connections to the server, which must have TLS too. Its
	// ServerName is Addr's host unless it has one.
	TLS *tls.Config

	// AnyOwner lets a plain server on this host belong to any user. Otherwise it must belong to
	// this process's own user or to root, as else another user could listen where a store is
	// expected, and say whatever it likes: such a one is ErrForeign. On Linux the kernel says whose
	// it is. Where it knows of none at the other end, the server is not believed either: that is so
	// where something translates addresses, and then this, or TLS, is needed.
	AnyOwner bool

	Timeout time.Duration // of operations and of Dial, where the context has no deadline; 0 means DefaultTimeout
	Limits  kv.Limits     // of what is sent and of what is accepted; should be the server's
	MaxIdle int           // connections kept for reuse; 0 means 4

	dial func(c context.Context, addr string) (net.Conn, error) // tests replace TCP
}

func (cfg Config) validate() error {
	errs := []error{kv.CheckLimits(cfg.Limits), wire.CheckDialect(cfg.Dialect)}
	if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
		errs = append(errs, fmt.Errorf("bad address: %w", err))
	}
	if cfg.WorldSize < 0 {
		errs = append(errs, fmt.Errorf("WorldSize must not be negative, but is %d", cfg.WorldSize))
	}
	if cfg.WaitForWorkers && cfg.WorldSize == 0 {
		errs = append(errs, errors.New("WaitForWorkers needs a WorldSize"))
	}
	if cfg.MaxIdle < 0 || cfg.Timeout < 0 {
		errs = append(errs, errors.New("MaxIdle and Timeout must not be negative"))
	}
	return errors.Join(errs...)
}

// Client is a store that lives in a server, a Weft server or PyTorch's. Each operation has a
// connection to itself while it runs, taken from a small pool, so one that waits holds up no other.
// A wait that is given up is taken back where the server knows how (PyTorch 2.1 and later);
// otherwise its connection is closed, so no late answer can be taken for that of a later question.
//
// A lost connection is made anew, with pauses that grow to a second, until the operation's
// deadline: what only reads goes on, a wait too, and so do Set, MultiSet and Delete, which may be
// done twice (Delete may then answer false although it was this call that removed the key). The
// other changes are repeated only if nothing of them was sent: else the error matches ErrUncertain.
//
// With a Weft server every operation is one round trip, but for a Pop that has to wait and a
// Barrier whose others are not there yet. A server of PyTorch's can less, and what it cannot is put
// together of what it can:
//
//   - It answers no SET, so a question that is always answered is sent along.
//   - Get waits and asks.
//   - Barrier is the server's own where it has one, as that of 2.15 has. Otherwise the client adds,
//     and then looks at the number until it is there.
//   - That of 1.13 has no MULTI_GET and no MULTI_SET: the keys are read, or written, one after
//     another, and others may see some new and some old. It has no APPEND, which cannot be had by
//     COMPARE_SET either, as who appends what another just appended could not tell whether it was
//     done; nor queues or a list of keys: these are ErrUnsupported. Queues came with PyTorch 2.8,
//     in its libuv server alone. That of 2.15 lists keys.
//   - Watch looks at the key 20 times a second: changes that were undone between two looks are not
//     seen, and Change.Dropped is -1. (Those of 1.13 and 2.0 would tell of changes, but when a
//     watcher has left they send its news to others, or hang up on whoever changes its key.)
type Client struct {
	base kv.Settings
	cfg  Config
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // of what goes on behind the callers' backs

	mu    sync.Mutex
	ways  []greeting // to begin a connection; one, once it is known
	idle  []*link
	due   int                // connections that will be idle when an answer has come for which nobody waits
	live  map[*link]struct{} // idle ones too
	knows map[state.Op]bool  // which of the newer commands a server of PyTorch's has

	watches watches
}

// Dial connects to a server, trying again until the deadline of c while there is none.
func Dial(c context.Context, cfg Config) (*Client, error) {
	if err := cfg.validate(); err != nil {
		return nil, &kv.Error{Op: "dial", Addr: cfg.Addr, Err: err}
	}
	if cfg.MaxIdle == 0 {
		cfg.MaxIdle = 4
	}
	if cfg.dial == nil {
		cfg.dial = func(c context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(c, "tcp", addr)
		}
	}
	cl := &Client{base: kv.NewSettings(cfg.Addr, cfg.Timeout, cfg.Limits), cfg: cfg, ways: greetings(cfg.Dialect),
		live: map[*link]struct{}{}, knows: map[state.Op]bool{}}
	cl.life, cl.end = context.WithCancel(context.Background())
	cl.watches.init(cl)
	k, err := cl.begin(c, "dial")
	if err == nil {
		err = k.fail(cl.connectFirst(k))
	}
	if err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}

// connectFirst makes the first connection and tells the others about it.
func (cl *Client) connectFirst(k *call) error {
	if err := cl.withRetry(k, func(*link) error { return nil }); err != nil {
		switch {
		case errors.Is(err, kv.ErrTimeout):
			err = unreachable(err)
		case k.c.Err() != nil:
			err = fmt.Errorf("%w: gave up trying to connect to %s: %w", kv.ErrUnreachable, cl.base.Addr, err)
		}
		return err
	}
	if cl.cfg.WorldSize == 0 {
		return nil
	}
	joined, err := cl.ask(k, state.Command{Op: state.OpAdd, Key: initKey, Delta: 1})
	if err != nil {
		return err
	}
	for n := joined.N; cl.cfg.WaitForWorkers && n < int64(cl.cfg.WorldSize); {
		err := cl.pause(k, kv.PollEvery)
		var r state.Reply
		if err == nil {
			r, err = cl.ask(k, state.Command{Op: state.OpGet, Key: initKey})
		}
		if errors.Is(err, kv.ErrTimeout) {
			return fmt.Errorf("Timed out after %s seconds waiting for clients. %d/%d clients joined. %w", //nolint:staticcheck // PyTorch's words
				strconv.FormatFloat(k.limit().Round(time.Millisecond).Seconds(), 'f', -1, 64), n, cl.cfg.WorldSize, err)
		}
		if err == nil {
			n, err = kv.ParseDecimal(r.Value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close implements Store.
func (cl *Client) Close() error {
	cl.end()
	cl.mu.Lock()
	for l := range cl.live {
		_ = l.nc.Close()
	}
	cl.mu.Unlock()
	cl.watches.shutDown(kv.ErrClosed)
	cl.wg.Wait()
	return nil
}

// idleCheck is how long a connection may be idle before it is looked at whether the server closed
// it.
const idleCheck = 5 * time.Millisecond

// acquire gives an idle connection or a new one.
func (cl *Client) acquire(k *call) (*link, error) {
	for {
		cl.mu.Lock()
		n := len(cl.idle)
		if n == 0 || cl.life.Err() != nil {
			cl.mu.Unlock()
			break
		}
		l := cl.idle[n-1]
		cl.idle = slices.Delete(cl.idle, n-1, n)
		cl.mu.Unlock()
		if k.start.Sub(l.idle) < idleCheck || quiet(l.nc) {
			return l, nil
		}
		cl.drop(l)
	}
	if cl.life.Err() != nil {
		return nil, kv.ErrClosed
	}
	return cl.connect(k)
}

// adopt makes l one of the client's connections.
func (cl *Client) adopt(l *link) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.life.Err() != nil {
		_ = l.nc.Close()
		return kv.ErrClosed
	}
	cl.live[l] = struct{}{}
	return nil
}

func (cl *Client) put(l *link) {
	l.idle = time.Now()
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.life.Err() == nil && len(cl.idle) < cl.cfg.MaxIdle {
		cl.idle = append(cl.idle, l)
		return
	}
	delete(cl.live, l)
	_ = l.nc.Close()
}

func (cl *Client) drop(l *link) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	delete(cl.live, l)
	_ = l.nc.Close()
}

// dropIdle closes the idle connections, which are most likely dead too when one is.
func (cl *Client) dropIdle() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, l := range cl.idle {
		_ = l.nc.Close()
		delete(cl.live, l)
	}
	cl.idle = nil
}

// drainLink keeps l, whose operation was over before its answer: that is read while nobody waits
// for it, after a wait was taken back. It says whether there is room for l.
func (cl *Client) drainLink(l *link) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.life.Err() != nil || len(cl.idle)+cl.due >= cl.cfg.MaxIdle {
		return false
	}
	cl.due++
	cl.wg.Go(func() {
		l.until(time.Now().Add(settleGrace))
		var err error
		if waits(l.owed.Op) {
			_, err = l.cancel(l.owed)
		} else {
			_, err = l.read(l.owed)
		}
		cl.mu.Lock()
		cl.due--
		cl.mu.Unlock()
		if err == nil || l.settled {
			cl.put(l)
		} else {
			cl.drop(l)
		}
	})
	return true
}
