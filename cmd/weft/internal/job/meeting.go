package job

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/elastic/rdzv"
)

// rdzvPort is where torchrun's machines meet when nobody says otherwise.
const rdzvPort = "29400"

// meeting is what the flags say of how machines meet.
type meeting struct {
	endpoint                       string
	wantRank                       int
	policy                         rdzv.Policy
	joinTimeout, lastCall, silence time.Duration
	etcd                           *etcdPlace // where the store is in etcd
}

// meeting reads the flags that are about the other machines. most is how many there may be.
func (f *Flags) meeting(most int) (m meeting, err error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch f.policy {
	case "", "worker":
	case "group":
		m.policy = rdzv.RestartGroup
	default:
		bad("--restart-policy: expected worker or group, got %q", f.policy)
	}
	m.endpoint = f.endpoint
	backend := f.meetsBy(most)
	if m.endpoint != "" && !f.inEtcd() && isPort(m.endpoint) {
		bad("--rdzv-endpoint: expected HOST[:PORT], as in 127.0.0.1:%s, got only a port: %q", m.endpoint, m.endpoint)
	} else if m.endpoint != "" && !f.inEtcd() && backend != "static" {
		if _, _, err := net.SplitHostPort(m.endpoint); err != nil {
			m.endpoint = net.JoinHostPort(strings.Trim(m.endpoint, "[]"), rdzvPort)
		}
		if host, port, err := net.SplitHostPort(m.endpoint); err != nil || host == "" || !isPort(port) {
			bad("--rdzv-endpoint: expected HOST[:PORT] with a port from 1 to 65535, got %q", f.endpoint)
		}
	}
	switch backend {
	case "store", "c10d":
		if most > 1 && m.endpoint == "" {
			bad("--nnodes %s: several machines need --rdzv-endpoint HOST:PORT, the same on all, to meet at; or --node-rank and --master-addr", f.nnodes)
		}
	case "etcd", "etcd-v2":
		m.etcd, err = f.etcdPlace()
		if errs = append(errs, err); err == nil {
			m.endpoint = m.etcd.shown
		}
	case "static":
		if most > 1 {
			m.endpoint, err = f.static(most)
			errs = append(errs, err)
		}
	default:
		bad("--rdzv-backend: expected store (or c10d), etcd or static, got %q", f.backend)
	}
	if f.standalone {
		if most > 1 || f.endpoint != "" {
			bad("--standalone: it is for one machine, without --rdzv-endpoint; drop it, or --nnodes %s", f.nnodes)
		}
	}
	if f.NodeRankGiven {
		m.wantRank = f.nodeRank + 1
	}
	errs = append(errs, m.configure(f.conf))
	if m.etcd != nil {
		m.etcd.outlive(m.silence)
	}
	return m, errors.Join(errs...)
}

// meetsBy is the backend: where none is named it is static, if the flags are those of torchrun's
// static form, else store.
func (f *Flags) meetsBy(most int) string {
	static := most > 1 && f.endpoint == "" && !f.standalone && (f.NodeRankGiven || f.masterAddr != "" || f.masterPort != 0)
	switch {
	case f.backend != "":
		return f.backend
	case static:
		return "static"
	}
	return "store"
}

// torchPort is where torchrun's workers meet when nobody says otherwise.
const torchPort = 29500

// static is where machines meet whose ranks are given: the first of them hosts the workers' store
// at the master's port, and the rendezvous one port further. As with torchrun, an endpoint may
// stand for the master's address and port.
func (f *Flags) static(most int) (endpoint string, err error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.endpoint != "" {
		host, text, err := net.SplitHostPort(f.endpoint)
		if err != nil {
			host, text = strings.Trim(f.endpoint, "[]"), strconv.Itoa(cmp.Or(f.masterPort, torchPort))
		}
		port, err := strconv.Atoi(text)
		switch {
		case err != nil:
			bad("--rdzv-endpoint: expected HOST[:PORT], got %q", f.endpoint)
		case f.masterAddr != "" && f.masterAddr != host, f.masterPort != 0 && f.masterPort != port:
			bad("--rdzv-endpoint %s is another place than --master-addr and --master-port; with --rdzv-backend static give one of the two", f.endpoint)
		default:
			f.masterAddr, f.masterPort = host, port
		}
	}
	var missing []string
	if !f.NodeRankGiven {
		missing = append(missing, "--node-rank")
	}
	if f.masterAddr == "" && f.endpoint == "" {
		missing = append(missing, "--master-addr")
	}
	if missing != nil {
		bad("--nnodes %s: several machines without --rdzv-endpoint need --node-rank, and --master-addr of the machine with rank 0, the same on all (--master-port, too, if it is not %d); missing: %s",
			f.nnodes, torchPort, strings.Join(missing, ", "))
	}
	if f.nodeRank < 0 || f.nodeRank >= most {
		bad("--node-rank: expected 0 to %d with --nnodes %s, got %d", most-1, f.nnodes, f.nodeRank)
	}
	f.masterPort = cmp.Or(f.masterPort, torchPort)
	if f.masterPort < 1 || f.masterPort > 65534 {
		bad("--master-port: expected 1 to 65534, as the machines meet one port further, got %d", f.masterPort)
	}
	return net.JoinHostPort(f.masterAddr, strconv.Itoa(f.masterPort+1)), errors.Join(errs...)
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// configure reads torchrun's k=v,…
func (m *meeting) configure(conf string) error {
	var errs []error
	durations := map[string]*time.Duration{"join_timeout": &m.joinTimeout, "timeout": &m.joinTimeout, "last_call_timeout": &m.lastCall,
		"keep_alive_timeout": &m.silence}
	var texts map[string]*string
	there := "there are join_timeout, last_call_timeout and keep_alive_timeout"
	if m.etcd != nil {
		texts = m.etcd.texts()
		durations["read_timeout"] = &m.etcd.config.Timeout
		there += ", and for etcd protocol, ca_cert, ssl_cert, ssl_cert_key, user, password_file and read_timeout"
	}
	for pair := range strings.SplitSeq(conf, ",") {
		if conf == "" {
			break
		}
		k, v, ok := strings.Cut(strings.TrimSpace(pair), "=")
		seconds, err := strconv.ParseFloat(v, 64)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("--rdzv-conf: expected k=v,…, got %q", pair))
		case texts[k] != nil:
			*texts[k] = v
		case m.etcd != nil && k == "password":
			errs = append(errs, fmt.Errorf("--rdzv-conf: password: %w: give it by $%s, or password_file=FILE", etcdlogin.ErrOnCommandLine, etcdlogin.PasswordVariable))
		case durations[k] == nil:
			errs = append(errs, fmt.Errorf("--rdzv-conf: unknown key %q; %s", k, there))
		case err != nil || seconds <= 0 || seconds > 1e6:
			errs = append(errs, fmt.Errorf("--rdzv-conf: %s: expected a number of seconds, more than 0 and at most 1000000, got %q", k, v))
		default:
			*durations[k] = time.Duration(seconds * float64(time.Second))
		}
	}
	if m.etcd != nil {
		errs = append(errs, m.etcd.secure())
	}
	return errors.Join(errs...)
}
