package job

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// store says how the job's stores are served: with TLS wherever the job has a secret. Machines
// without one meet in plain text: on loopback, where the kernel tells whose process a client is, or
// where the user says so. The identity is the one for TLS, nil without it.
func (f *Flags) store(token, job string) (cfg store.ServerConfig, id *transport.Identity, err error) {
	var errPlain error
	if cfg.Plain, errPlain = cli.ParsePlain(f.storePlain); errPlain != nil {
		errPlain = fmt.Errorf("--store-plain: %w", errPlain)
	}
	needed := cfg.Plain == store.PlainNever
	if text := os.Getenv(rpc.StoreTLSVariable); text != "" {
		asked, err := strconv.ParseBool(text)
		if err != nil {
			return cfg, nil, fmt.Errorf("$%s: expected 1 or 0, got %q", rpc.StoreTLSVariable, text)
		}
		needed = needed || asked
	}
	files, err := f.Certificates()
	if err != nil {
		return cfg, nil, err
	}
	switch {
	case files.CA != "":
		id, err = f.Identify(files, job, nil)
	case token != "":
		id, err = transport.IdentityFromToken(token, job, "the job's store", time.Now)
	case needed, f.reachable() && cfg.Plain != store.PlainAlways:
		err = errNoSecret
	}
	if id != nil && err == nil {
		cfg.TLS = id.StoreTLS()
	}
	return cfg, id, errors.Join(errPlain, err)
}

var errNoSecret = errors.New("several machines need the job's secret, the same on all, or certificates: " + secrets.GiveOwn +
	"; or say --store-plain always on a network that you trust; weft token --output FILE makes a secret")

// reachable says whether other machines reach one of the addresses that the flags name.
func (f *Flags) reachable() bool {
	for _, host := range append(f.hosts(), f.masterAddr, f.localAddr) {
		if host != "" && !reach.Loopback(host) {
			return true
		}
	}
	return false
}
