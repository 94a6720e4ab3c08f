package job

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/etcd"
)

// etcdPort is where etcd's members take clients when nobody says otherwise.
const etcdPort = "2379"

// maxKeyFile bounds what is read of a key's file.
const maxKeyFile = 1 << 20

// etcdPlace is where machines meet in etcd: below the prefix that is given each job has one of its
// own, named by its id.
type etcdPlace struct {
	config                  etcd.Config
	shown                   string // of it to people; it begins with the first host and its port
	protocol, ca, cert, key string // of --rdzv-conf
	login                   etcdlogin.Login
}

// inEtcd says whether --rdzv-endpoint names members of etcd.
func (f *Flags) inEtcd() bool { return f.backend == "etcd" || f.backend == "etcd-v2" }

// hosts are those that --rdzv-endpoint names.
func (f *Flags) hosts() (out []string) {
	endpoints := f.endpoint
	if f.inEtcd() {
		endpoints = etcdURL(f.endpoint).Host
		endpoints = endpoints[strings.LastIndexByte(endpoints, '@')+1:]
	}
	for _, e := range strings.Split(endpoints, ",") {
		host, _, err := net.SplitHostPort(e)
		if err != nil {
			host = strings.Trim(e, "[]")
		}
		if host != "" {
			out = append(out, host)
		}
	}
	return out
}

func etcdURL(endpoint string) store.URL {
	hosts, path, _ := strings.Cut(strings.TrimPrefix(endpoint, "etcd://"), "/")
	return store.URL{Scheme: "etcd", Host: hosts, Path: "/" + strings.Trim(path, "/")}
}

func (f *Flags) etcdPlace() (*etcdPlace, error) {
	var errs []error
	if f.endpoint == "" {
		errs = append(errs, fmt.Errorf("--rdzv-backend %s needs --rdzv-endpoint HOST[:PORT],…[/PREFIX], the members of the cluster, the same on all machines", f.backend))
	}
	if f.runID == "" {
		errs = append(errs, fmt.Errorf("--rdzv-backend %s needs --rdzv-id, the same on all machines: jobs share the cluster, and are told apart by it", f.backend))
	}
	p := &etcdPlace{}
	u := etcdURL(f.endpoint)
	var err error
	if u.Host, err = p.login.FromHosts(u.Host); errors.Is(err, etcdlogin.ErrOnCommandLine) {
		err = fmt.Errorf("%w: give it by $%s, or --rdzv-conf password_file=FILE, and before the hosts the user alone", err, etcdlogin.PasswordVariable)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("--rdzv-endpoint: %w", err))
	}
	config, err := etcd.FromURL(u, store.OpenConfig{})
	if err != nil {
		errs = append(errs, fmt.Errorf("--rdzv-endpoint: %w", err))
	}
	if config.Endpoints == nil {
		config.Endpoints = []string{"127.0.0.1"}
	}
	for i, e := range config.Endpoints {
		if host, _, err := net.SplitHostPort(e); err != nil || host == "" {
			config.Endpoints[i] = net.JoinHostPort(strings.Trim(e, "[]"), etcdPort)
		}
	}
	prefix := strings.TrimRight(cmp.Or(config.Prefix, "/weft"), "/")
	config.Prefix = prefix + "/rdzv/" + url.PathEscape(f.runID)
	p.config, p.shown = config, strings.Join(config.Endpoints, ",")+prefix
	return p, errors.Join(errs...)
}

// outlive has etcd forget a job whose machines are all gone: much later than when they give up on
// etcd themselves.
func (p *etcdPlace) outlive(silence time.Duration) { p.config.Lease = max(5*time.Minute, 12*silence) }

// stays is how long at most etcd keeps what killed machines leave.
func (p *etcdPlace) stays() time.Duration {
	if p == nil {
		return 0
	}
	return p.config.Lease
}

// texts are torchrun's keys of --rdzv-conf, of either of its etcd backends.
func (p *etcdPlace) texts() map[string]*string {
	return map[string]*string{"protocol": &p.protocol, "ca_cert": &p.ca, "cacert": &p.ca, "ssl_cert": &p.cert, "cert": &p.cert,
		"ssl_cert_key": &p.key, "key": &p.key, "user": &p.login.User, "password_file": &p.login.PasswordFile}
}

// secure reads the certificates and the password that the conf names.
func (p *etcdPlace) secure() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("--rdzv-conf: "+format, args...)) }
	if p.protocol != "" && p.protocol != "http" && p.protocol != "https" {
		bad("protocol: expected http or https, got %q", p.protocol)
	}
	if (p.cert == "") != (p.key == "") {
		bad("expected both of ssl_cert and ssl_cert_key, or neither")
	}
	if err := p.login.Apply(&p.config); err != nil {
		bad("%w", err)
	}
	named := p.ca+p.cert != ""
	if p.protocol == "http" && named {
		bad("certificates are for protocol=https")
	}
	if p.protocol == "https" || p.protocol == "" && named {
		p.config.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if p.ca != "" {
		pem, err := os.ReadFile(p.ca)
		pool := x509.NewCertPool()
		switch {
		case err != nil:
			bad("ca_cert: %w", err)
		case !pool.AppendCertsFromPEM(pem):
			bad("ca_cert: %s has no certificate in PEM", p.ca)
		case p.config.TLS != nil:
			p.config.TLS.RootCAs = pool
		}
	}
	if p.cert != "" && p.key != "" {
		pair, err := keyPair(p.cert, p.key)
		if err != nil {
			bad("ssl_cert and ssl_cert_key: %w", err)
		} else if p.config.TLS != nil {
			p.config.TLS.Certificates = []tls.Certificate{pair}
		}
	}
	return errors.Join(errs...)
}

// keyPair reads a certificate, and its key where nobody else can read that.
func keyPair(cert, key string) (tls.Certificate, error) {
	c, err := os.ReadFile(cert)
	if err != nil {
		return tls.Certificate{}, err
	}
	k, err := private.ReadSecret(key, maxKeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(c, k)
}

// opener opens the job's part of the cluster; nil where machines do not meet there.
func (p *etcdPlace) opener() func(context.Context) (store.Store, error) {
	if p == nil {
		return nil
	}
	return func(c context.Context) (store.Store, error) { return etcd.Dial(c, p.config) }
}
