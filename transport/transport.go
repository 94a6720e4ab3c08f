package transport

import (
	"log/slog"
	"time"

	"github.com/weft-project/weft/transport/internal/identity"
	"github.com/weft-project/weft/transport/internal/link"
	"github.com/weft-project/weft/transport/internal/wire"
)

// ALPN is the protocol that both ends must speak. It versions the frames and the set-up of links.
const ALPN = wire.ALPN

// The lanes of a link: ways by which its bytes travel. Every link has LaneQUIC.
const (
	LaneQUIC  = wire.LaneQUIC  // everything, over QUIC
	LaneCUDA  = wire.LaneCUDA  // tensors on a GPU that both ends use, within it
	LaneLocal = wire.LaneLocal // both ends on one host: frames over a unix socket, tensors in shared memory
	LaneBulk  = wire.LaneBulk  // large tensors over several TLS connections
)

// LaneNames are all lanes, in order of preference; LaneQUIC is the last.
func LaneNames() []string { return wire.LaneNames() }

// TensorsAlone says whether a lane moves tensors and nothing else: what is small goes by another.
func TensorsAlone(name string) bool { return wire.TensorsAlone(name) }

// The making of links.
type (
	// Config configures [New]: Identity, Limits, IdleTimeout, KeepAlive, MaxStreams, Devices,
	// Lanes, LendCopies and Logger. Only Identity is required.
	Config = link.Config
	// Limits bounds what messages may claim, in both directions: MaxHeader, MaxTensors,
	// MaxTensorBytes, MaxMessageBytes, MaxPeerBytes and MaxQueued. Zero means the default.
	Limits = wire.Limits
	// Network makes links: Listen waits for peers, and Dial links with one that listens. It holds
	// nothing that needs closing.
	Network = wire.Network
	// Acquainted is a [Network] that can be told, by Acquaint, where members of the job are. In a
	// crowd of strangers their hosts have places of their own.
	Acquainted = link.Acquainted
	// Listener takes the links that peers dial: Addr, Accept and Close.
	Listener = wire.Listener
)

// New makes a Network over QUIC: TLS 1.3 with both ends verified, one UDP socket per listener and
// one for dialling. It sets the environment variable QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING, where
// the user has not set it. (On Linux, net.core.rmem_max and wmem_max of 7500000 serve best.)
func New(cfg Config) (Network, error) { return link.New(cfg) }

// CheckLanes refuses what is no lane's name.
func CheckLanes(names []string) error { return link.CheckLanes(names) }

// What travels.
type (
	// Link is one authenticated connection to a peer, with many streams: Open, Accept, RemoteAddr,
	// Vouches, Lanes, Done, Err and Close.
	Link = wire.Link
	// LaneState is a lane of one link: its Name, Why it is not used, and the bytes that it Sent and
	// Received. Passed counts, for LaneCUDA, the messages that went by another lane.
	LaneState = wire.LaneState
	// Stream carries messages in both directions, in order; one per call: Send, Recv, CloseSend,
	// Reset and Context. It takes one sender and one receiver at a time.
	Stream = wire.Stream
	// Message is what travels: a Kind, a Header that this package does not look into, and Tensors.
	// End says that nothing follows.
	Message = wire.Message
	// Tensor is a tensor on a link: its Dtype, its Shape, the Device where it is to land, and Buf,
	// its bytes; little-endian, row-major.
	Tensor = wire.Tensor
	// Place gives the buffer in which an arriving tensor of that many bytes lands. The buffer must
	// have exactly this length.
	Place = wire.Place
)

// The environment of a job's processes says what they are members by: a shared secret, or the files
// of certificates, which come before it. JobVariable names the job's id; where nobody gives one it
// is NoJob.
const (
	TokenVariable = identity.TokenVariable
	CAVariable    = identity.CAVariable
	CertVariable  = identity.CertVariable
	KeyVariable   = identity.KeyVariable
	JobVariable   = identity.JobVariable
	NoJob         = identity.NoJob
)

// Membership of a job.
type (
	// Identity is what makes a worker a member of a job: both ends of every link show that they
	// are. It is safe for concurrent use. Vouches says whether peers take it for a name and rank,
	// and StoreTLS is for the job's store.
	Identity = identity.Identity
	// IdentityFiles names the files of a worker's own certificate, in PEM: CA, Cert and Key; the
	// Job's id; and a Logger.
	IdentityFiles = identity.Files
)

// NewToken makes a secret for a job.
func NewToken() string { return identity.NewToken() }

// StrengthenToken makes a token of a job's secret. A token of [NewToken] stays what it is. Any
// other secret must be worth 50 bits. It goes through argon2id with the job's id, which costs 64
// MiB of memory and more than 100 ms, and as much for each guess of an attacker. A letter of a word
// is worth 1.5 bits. Any other character is worth the binary logarithm of how many different
// characters the secret has, and nothing where it continues a repetition ("abab") or a series
// ("1234", "ccc"). All members of a job make the same token of the same secret. White space around
// a secret does not count.
func StrengthenToken(token, job string) (string, error) { return identity.StrengthenToken(token, job) }

// JobFromEnv reads JobVariable.
func JobFromEnv() string { return identity.JobFromEnv() }

// CertificatesFromEnv reads CAVariable, CertVariable and KeyVariable. Where one is set, all are
// needed. The Job is left to the caller.
func CertificatesFromEnv() (IdentityFiles, error) { return identity.CertificatesFromEnv() }

// IdentityFromEnv is the identity that the environment names, for a member of that name. log is for
// what becomes of files.
func IdentityFromEnv(name string, log *slog.Logger) (*Identity, error) {
	return identity.FromEnv(name, log)
}

// IdentityFromToken derives the CA of a job from its token and its id, the same at every worker,
// and mints certificates for the worker called name. Any bytes may be an id, also none. A secret
// that is no token goes through [StrengthenToken] first. now is time.Now (so is nil), or a test's.
func IdentityFromToken(token, job, name string, now func() time.Time) (*Identity, error) {
	return identity.FromToken(token, job, name, now)
}

// IdentityFromFiles uses the user's own CA, certificate and key. The files are looked at again
// while links are made, at most once a second, so that they can be renewed while the job runs: they
// are taken when all three fit together. Links that exist live on. To change the CA, first let
// every worker's CA file hold the old one and the new one.
func IdentityFromFiles(files IdentityFiles) (*Identity, error) {
	return identity.FromFiles(files)
}
