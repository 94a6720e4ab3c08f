package store

import (
	"context"

	"github.com/weft-project/weft/store/internal/client"
	"github.com/weft-project/weft/store/internal/file"
	"github.com/weft-project/weft/store/internal/kv"
	"github.com/weft-project/weft/store/internal/server"
	"github.com/weft-project/weft/store/internal/wire"
)

// What every store has in common.
type (
	// Pair is a key and its value: Key and Value.
	Pair = kv.Pair
	// Limits bounds what is accepted from a caller, from the network and from a file, in bytes and
	// before any allocation: the longest Key, with the slash that is put before every key (8 KiB);
	// the longest Value, and all keys of one call together (8 MiB); the Keys in one call, and those
	// that one client may watch (131072); and the Memory of all keys and values, and of the keys
	// that clients wait for or watch, each counting 64 bytes more than it has (1 GiB). What would
	// exceed Memory fails with ErrFull. Zero means the default. Those but Memory's are PyTorch's.
	Limits = kv.Limits
	// Error says which operation on which key of which store failed: Op ("get", "wait", "dial", …),
	// Key (empty where there is none or more than one), Addr (the server's host:port, or the file's
	// path; empty in memory), and Err.
	Error = kv.Error
)

// DefaultTimeout bounds an operation whose context has no deadline, if the store's configuration
// says nothing else.
const DefaultTimeout = kv.DefaultTimeout

// What can go wrong with a store; every error of this package wraps one of these or the context's
// cause.
var (
	ErrTimeout     = kv.ErrTimeout // such errors match context.DeadlineExceeded too
	ErrClosed      = kv.ErrClosed
	ErrBadKey      = kv.ErrBadKey
	ErrTooLarge    = kv.ErrTooLarge
	ErrNotANumber  = kv.ErrNotANumber
	ErrProtocol    = kv.ErrProtocol
	ErrUnreachable = kv.ErrUnreachable
	ErrBadURL      = kv.ErrBadURL
	ErrUnsupported = kv.ErrUnsupported
	ErrFull        = kv.ErrFull
	ErrCorrupt     = kv.ErrCorrupt
	ErrForeign     = kv.ErrForeign  // the server belongs to another user of this host
	ErrStranger    = kv.ErrStranger // the store serves its own user's processes alone
	ErrOtherJob    = kv.ErrOtherJob // it is the store of another job's id, or of another version of Weft
	ErrNotTLS      = kv.ErrNotTLS
	ErrNeedsTLS    = kv.ErrNeedsTLS // the store takes TLS alone, and the client speaks plain text

	// ErrUncertain marks the failure of a change that may nevertheless have happened: its answer
	// was lost. A failed change without it has not happened.
	ErrUncertain = kv.ErrUncertain
)

// Watching a key.
type (
	// Watch is the news of one key: C delivers changes in their order, and is closed when the watch
	// has ended; then Err says why. Stop ends it. It keeps up to 1024 changes, or 32 MiB, for a
	// slow reader and then drops the oldest. It is safe for concurrent use.
	Watch = kv.Watch
	// Change is one thing that happened to a watched key: its Kind and Key, and the Old and New
	// value, nil where there is none. The reader owns the slices. Dropped is how many changes
	// before this one are missing, because the reader was slow or the connection was lost; -1 means
	// that it is not known how many. The latest change is never dropped.
	Change = kv.Change
	// ChangeKind is what happened to a watched key.
	ChangeKind = kv.ChangeKind
)

// The kinds of change.
const (
	Updated = kv.Updated
	Created = kv.Created
	Deleted = kv.Deleted
)

// NewWatch is for those who write a [Store]: a watch that lives until c is over, Stop is called, or
// its last change after end was delivered; then it calls release, once. send queues a change, never
// blocks, and owns its slices; end closes the watch after what is queued, with an error that Err
// returns and that is not nil. Both may be called at any time; after end the other does nothing.
func NewWatch(c context.Context, release func()) (w *Watch, send func(Change), end func(error)) {
	return kv.NewWatch(c, release)
}

// A store over TCP.
type (
	// Server keeps a store for clients over TCP: Addr, Stats, Failed, Err and Close. It speaks the
	// protocol of PyTorch's TCPStore in all its dialects, and Weft's own mode of it. It differs
	// from PyTorch's servers on purpose: a client that sends half a command, or reads no replies,
	// delays nobody else; all that it takes is bounded; it listens on its address alone; changes
	// of several keys are atomic; and not everybody is served, see [Plain].
	Server = server.Server
	// ServerConfig says where a server listens (Addr or Listener), to whom it speaks how (Dialect,
	// TLS, Plain), what it keeps (Journal), how much it accepts (Limits, MaxClients), and who hears
	// why clients were closed (Logger). The zero value listens on a free port of 127.0.0.1.
	ServerConfig = server.Config
	// ServerStats is what a server counts, guests and what they have included.
	ServerStats = server.Stats
	// JournalConfig says where a server keeps what it has to know after a crash: the Path of the
	// file, which is made if it does not exist; Sync, when a change is brought to the disk, by
	// default before anybody hears of it; and Growth, how many times as large as what it keeps the
	// file becomes before it is compacted (4; less means never). The zero value keeps nothing.
	// What anybody has heard of a change is in the journal first, and a server that is started
	// again with it knows it.
	JournalConfig = server.JournalConfig
	// Plain says from whom a server takes connections that are not encrypted, such as those of
	// PyTorch's clients. With TLS, they are guests behind the same port: they have keys of their
	// own, and neither see nor change the members'.
	Plain = server.Plain

	// Client is a store that lives in a server, a Weft [Server] or PyTorch's. Each operation has a
	// connection to itself while it runs, taken from a small pool, so one that waits holds up no
	// other. A lost connection is made anew until the operation's deadline. With a Weft server
	// every operation is one round trip, but for a Pop or a Barrier that has to wait. What a server
	// of PyTorch's cannot is put together of what it can, or [ErrUnsupported].
	Client = client.Client
	// ClientConfig says which server to use (Addr; its Dialect, TLS and AnyOwner), who else does
	// (WorldSize, WaitForWorkers), and within which bounds (Timeout, Limits, MaxIdle). Only Addr is
	// required.
	ClientConfig = client.Config
	// Dialect is one of the mutually incompatible ways in which PyTorch's releases speak the
	// TCPStore protocol.
	Dialect = wire.Dialect
)

// From whom a server takes plain text. The zero value is right for most.
const (
	// PlainAuto takes plain text from processes of this host, of the server's own user and of root.
	// A server without TLS that listens on an address which other machines reach takes it from
	// everybody: that is what its operator asked for.
	PlainAuto   = server.PlainAuto
	PlainAlways = server.PlainAlways // from everybody
	PlainNever  = server.PlainNever  // from nobody; needs a TLS configuration
)

// The dialects. Releases of which one only knows more commands than the other are one dialect.
const (
	// DialectAuto is for a server: that of PyTorch 2.2 and later for who opens with its greeting,
	// and that of 1.13 for everybody else. For a client: the one of the two that the server
	// understands.
	DialectAuto = wire.DialectAuto
	Dialect113  = wire.Dialect113 // PyTorch 1.13, and 2.0
	Dialect20   = wire.Dialect20  // PyTorch on the way from 2.0 to 2.1, in no release
	Dialect21   = wire.Dialect21  // PyTorch 2.1
	Dialect22   = wire.Dialect22  // PyTorch 2.2 and later, tried up to 2.15
)

// Serve starts a server. It runs until it is closed.
func Serve(cfg ServerConfig) (*Server, error) { return server.Serve(cfg) }

// Dial connects to a server, trying again until the deadline of c while there is none.
func Dial(c context.Context, cfg ClientConfig) (*Client, error) { return client.Dial(c, cfg) }

// ParseDialect reads "auto" or a release of PyTorch, such as "1.13" or "2.15". One newer than those
// that were tried is refused: DialectAuto finds out what it speaks.
func ParseDialect(text string) (Dialect, error) { return wire.ParseDialect(text) }

// A store in a file.
type (
	// File is a store in a file that all clients can lock with flock(2), in the format of PyTorch's
	// FileStore. The file grows with every change, so this is for a rendezvous and not for a busy
	// job. A file that is no such log, or is damaged before its end, is [ErrCorrupt], and is not
	// touched. The file system must have locks that hold for all machines that use the file; NFS
	// has, unless it is mounted with nolock or local_lock.
	File = file.File
	// FileConfig says how a file store is used: the last of WorldSize clients to close removes the
	// file; References counts this client in, as PyTorch's from 2.0 on do; Timeout, Poll and
	// Limits. Its zero value works, and leaves the file there.
	FileConfig = file.Config
)

// NewFile opens the store in path and makes the file, for this user alone, if it does not exist.
// Its directory must exist. A file that another user could have made or may change is refused, and
// so is a link of another user's in its path.
func NewFile(path string, cfg FileConfig) (*File, error) { return file.New(path, cfg) }

var (
	_ Store = (*Client)(nil)
	_ Store = (*File)(nil)
)
