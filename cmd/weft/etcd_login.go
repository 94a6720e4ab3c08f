package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/store/etcd"
)

// etcdUserVariable and etcdPasswordVariable are the variables with what etcd wants to know. Workers
// do not get them.
const (
	etcdUserVariable     = "WEFT_ETCD_USER"
	etcdPasswordVariable = "WEFT_ETCD_PASSWORD"
)

// errArgv is that a password stands where every user of the host can read it, for as long as the
// process runs.
var errArgv = errors.New("a password does not belong here, as a command line is shown to all users of this host")

// etcdLogin is by what etcd knows a client.
type etcdLogin struct {
	user, passwordFile string // as given; the latter by --rdzv-conf
}

// fromHosts takes the user that stands before the hosts of an endpoint, and gives the hosts. A
// password there is refused.
func (l *etcdLogin) fromHosts(hosts string) (string, error) {
	at := strings.LastIndexByte(hosts, '@')
	if at < 0 {
		return hosts, nil
	}
	user, _, password := strings.Cut(hosts[:at], ":")
	user, err := url.PathUnescape(user)
	switch {
	case password:
		err = errArgv
	case err != nil:
		err = fmt.Errorf("%w: the user: not escaped as in a URL", store.ErrBadURL)
	default:
		l.user = user
	}
	return hosts[at+1:], err
}

// apply sets user and password.
func (l etcdLogin) apply(config *etcd.Config) error {
	config.Username, config.Password = cmp.Or(l.user, os.Getenv(etcdUserVariable)), os.Getenv(etcdPasswordVariable)
	if l.passwordFile != "" {
		password, err := secret.ReadLine(l.passwordFile)
		if err != nil {
			return fmt.Errorf("password_file: %w", err)
		}
		config.Password = password
	}
	switch {
	case config.Username == "" && config.Password != "":
		return fmt.Errorf("etcd's password is given, and no user: write it as USER@HOST, or set $%s", etcdUserVariable)
	case config.Username != "" && config.Password == "":
		return fmt.Errorf("etcd's user is given, and no password: set $%s", etcdPasswordVariable)
	}
	return nil
}

// openEtcd opens a store in etcd for the commands of weft store, whose password is in the
// environment.
func openEtcd(c context.Context, u store.URL, cfg store.OpenConfig) (store.Store, error) {
	var login etcdLogin
	var err error
	if u.Host, err = login.fromHosts(u.Host); err != nil {
		return nil, fmt.Errorf("%w: set $%s instead, and $%s", err, etcdPasswordVariable, etcdUserVariable)
	}
	config, err := etcd.FromURL(u, cfg)
	if err == nil {
		err = login.apply(&config)
	}
	if err != nil {
		return nil, err
	}
	s, err := etcd.Dial(c, config)
	if err != nil {
		return nil, err
	}
	return s, nil
}
