package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	connecting "google.golang.org/grpc/backoff"

	"github.com/weft-project/weft/store"
)

// Config says which cluster to use and how. Its zero value means an etcd on this machine.
type Config struct {
	// Endpoints are members of the cluster, as host or host:port with 2379 as the port that need
	// not be given. One is enough, but only those given are tried when others are lost. None means
	// 127.0.0.1.
	Endpoints []string

	// Prefix is what the store's keys in etcd start with; stores with different ones do not see
	// each other, unless one continues the other after a slash. Slashes at its end do not count. ""
	// means "/weft".
	Prefix string

	// Lease, if not 0, is how long what lies under Prefix outlives the stores that have it open
	// with a Lease, in whole seconds: the last one to be closed removes it all, and what those
	// leave behind who died without is gone after so long. 0 means that it stays until it is
	// deleted.
	Lease time.Duration

	TLS                *tls.Config // nil means plain text; without a ServerName members are verified by their hosts' names
	Username, Password string      // both or none; only over TLS, or to this machine

	Timeout time.Duration // of operations and of Dial, where the context has no deadline; 0 means store.DefaultTimeout
	Limits  store.Limits  // but Memory, which is etcd's own matter (--quota-backend-bytes)
}

const (
	defaultPrefix = "/weft"
	defaultPort   = "2379"
)

// validate returns all that is wrong with cfg.
func (cfg Config) validate() error {
	var errs []error
	for _, e := range cfg.Endpoints {
		host, port, err := net.SplitHostPort(withPort(e))
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("bad endpoint %q: expected host or host:port: %w", e, err))
		case host == "" || strings.ContainsAny(host, "/@ "):
			errs = append(errs, fmt.Errorf("bad endpoint %q: expected host or host:port", e))
		case !isPort(port):
			errs = append(errs, fmt.Errorf("bad endpoint %q: the port must have a value from 1 to 65535", e))
		case cfg.Username != "" && cfg.TLS == nil && !loopback(host):
			errs = append(errs, fmt.Errorf("a password would go to endpoint %q in plain text: TLS expected", e))
		}
	}
	if (cfg.Username == "") != (cfg.Password == "") {
		errs = append(errs, errors.New("a user name and a password are expected, or neither"))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("the timeout must not be negative, but is %v", cfg.Timeout))
	}
	if cfg.Lease < 0 || cfg.Lease > 0 && cfg.Lease < time.Second {
		errs = append(errs, fmt.Errorf("the lease must have a second at least, but is %v", cfg.Lease))
	}
	if l := cfg.Limits; min(l.Key, l.Value, l.Keys, l.Memory) < 0 {
		errs = append(errs, fmt.Errorf("limits must not be negative, but are %+v", l))
	}
	return errors.Join(errs...)
}

func (cfg Config) withDefaults() Config {
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = []string{"127.0.0.1"}
	}
	cfg.Endpoints = slices.Clone(cfg.Endpoints)
	for i, e := range cfg.Endpoints {
		cfg.Endpoints[i] = withPort(e)
	}
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	cfg.Prefix = strings.TrimRight(cfg.Prefix, "/")
	if cfg.Timeout == 0 {
		cfg.Timeout = store.DefaultTimeout
	}
	if cfg.Limits.Keys == 0 {
		cfg.Limits.Keys = 128 << 10 // as package store has it
	}
	return cfg
}

// client is what etcd's client is told. A connection is pinged as often as etcd allows by default,
// so that a member that hangs, or whose host is gone, is left after 20 s.
func (cfg Config) client() clientv3.Config {
	scheme := "http://"
	if cfg.TLS != nil {
		scheme = "https://"
	}
	urls := make([]string, len(cfg.Endpoints))
	for i, e := range cfg.Endpoints {
		urls[i] = scheme + e
	}
	options := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(failFast),
		// A member that comes back is noticed in seconds; gRPC's own backoff grows to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: connecting.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second}}),
	}
	if cfg.TLS != nil && cfg.TLS.ServerName != "" {
		options = append(options, grpc.WithAuthority(cfg.TLS.ServerName)) // gRPC takes the host's name otherwise
	}
	return clientv3.Config{
		Endpoints:            urls,
		TLS:                  cfg.TLS,
		Username:             cfg.Username,
		Password:             cfg.Password,
		DialTimeout:          5 * time.Second, // of getting a token
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 10 * time.Second,
		MaxCallSendMsgSize:   math.MaxInt32, // Limits hold; what a server takes it says itself
		DialOptions:          options,
		MaxUnaryRetries:      uint(len(urls)) + 1, // also after a new token
	}
}

// failFast has a request fail where there is no connection, with the reason, instead of waiting for
// one without a word.
func failFast(c context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(c, method, req, reply, conn, append(slices.Clip(opts), grpc.WaitForReady(false))...)
}

func withPort(endpoint string) string {
	if strings.HasPrefix(endpoint, "[") && strings.HasSuffix(endpoint, "]") || !strings.Contains(endpoint, ":") {
		return endpoint + ":" + defaultPort
	}
	return endpoint
}

func isPort(text string) bool {
	n := 0
	for _, d := range []byte(text) {
		if n = n*10 + int(d-'0'); d < '0' || d > '9' || n > math.MaxUint16 {
			return false
		}
	}
	return n > 0
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
