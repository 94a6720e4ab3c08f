package etcdlogin

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

// UserVariable and PasswordVariable name the variables with etcd's user and password. Workers do
// not get the password.
const (
	UserVariable     = "WEFT_ETCD_USER"
	PasswordVariable = "WEFT_ETCD_PASSWORD"
)

// ErrOnCommandLine is that a password stands where every user of the host can read it while the
// process runs.
var ErrOnCommandLine = errors.New("a password does not belong here, as a command line is shown to all users of this host")

// Login is by what etcd knows a client.
type Login struct {
	User, PasswordFile string // as given; the latter by --rdzv-conf
}

// FromHosts takes the user that stands before the hosts of an endpoint, and gives the hosts. A
// password there is refused.
func (l *Login) FromHosts(hosts string) (string, error) {
	at := strings.LastIndexByte(hosts, '@')
	if at < 0 {
		return hosts, nil
	}
	user, _, password := strings.Cut(hosts[:at], ":")
	user, err := url.PathUnescape(user)
	switch {
	case password:
		err = ErrOnCommandLine
	case err != nil:
		err = fmt.Errorf("%w: the user: not escaped as in a URL", store.ErrBadURL)
	default:
		l.User = user
	}
	return hosts[at+1:], err
}

// Apply sets user and password.
func (l Login) Apply(config *etcd.Config) error {
	config.Username, config.Password = cmp.Or(l.User, os.Getenv(UserVariable)), os.Getenv(PasswordVariable)
	if l.PasswordFile != "" {
		password, err := secret.ReadLine(l.PasswordFile)
		if err != nil {
			return fmt.Errorf("password_file: %w", err)
		}
		config.Password = password
	}
	switch {
	case config.Username == "" && config.Password != "":
		return fmt.Errorf("etcd's password is given, and no user: write it as USER@HOST, or set $%s", UserVariable)
	case config.Username != "" && config.Password == "":
		return fmt.Errorf("etcd's user is given, and no password: set $%s", PasswordVariable)
	}
	return nil
}

// Open opens a store in etcd for the commands of weft store, whose password is in the
// environment.
func Open(c context.Context, u store.URL, cfg store.OpenConfig) (store.Store, error) {
	var login Login
	var err error
	if u.Host, err = login.FromHosts(u.Host); err != nil {
		return nil, fmt.Errorf("%w: set $%s instead, and $%s", err, PasswordVariable, UserVariable)
	}
	config, err := etcd.FromURL(u, cfg)
	if err == nil {
		err = login.Apply(&config)
	}
	if err != nil {
		return nil, err
	}
	return etcd.Dial(c, config)
}
