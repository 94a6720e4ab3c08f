package storecmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/cmd/weft/internal/secrets"
	"github.com/weft-project/weft/store"
)

// explain turns what became of an operation into what to do about it, and into an exit code.
func (f *storeFlags) explain(err error) error {
	var exit *cli.ExitError
	var sig cli.Signal
	switch {
	case err == nil || errors.As(err, &exit):
		return err
	case errors.As(err, &sig):
		return cli.Exit(128+int(sig), err)
	}
	code := cli.CodeFailed
	if f.timeout > 0 && errors.Is(err, store.ErrTimeout) && !errors.Is(err, store.ErrUnreachable) { // who waited for no key misses none
		code = cli.CodeMissing
	}
	if advice := f.advice(err); advice != "" {
		err = fmt.Errorf("%w\n%s", err, advice)
	}
	return cli.Exit(code, err)
}

// asGuest tells who showed no secret to a store that has TLS that there are other keys, too. ""
// means that it is not so, or that nobody knows.
func (f *storeFlags) asGuest(c context.Context) string {
	u, err := url.Parse(f.url)
	if secure, _ := f.secure(); secure || err != nil || u.Scheme != "tcp" || !reach.HasTLS(c, u.Host) {
		return ""
	}
	return "these are the keys of guests: to see those of the job's members " + secrets.GiveOwn + ", and its --rdzv-id"
}

func (f *storeFlags) advice(err error) string {
	secure, _ := f.secure()
	var notTLS tls.RecordHeaderError
	if u, errURL := url.Parse(f.url); errURL == nil && u.Scheme == "tcp" && !reach.AnotherJob(err) {
		if why := reach.Why(err, u.Host); why != "" {
			return why + ": is the store running (weft store serve --listen HOST:PORT), and is this its address?"
		}
	}
	switch {
	case strings.HasPrefix(f.url, "etcd:") && errors.Is(err, store.ErrUnreachable):
		return "is that the address of a member of the cluster (clients' port, 2379 mostly), and does it run?"
	case reach.Refusal(err) != "":
		return reach.Refusal(err)
	case errors.Is(err, store.ErrForeign):
		return "?any_owner=true behind the URL speaks with it all the same, if that user is trusted"
	case errors.As(err, &notTLS), secure && errors.Is(err, store.ErrUnreachable):
		return "it may be a store without TLS (--tls=false), or none"
	case errors.Is(err, store.ErrProtocol):
		return "what listens there does not answer as a store: is this the store's address?"
	case errors.Is(err, store.ErrUnreachable):
		return "what listens there hangs up or says nothing: it may be a store that wants TLS (" + secrets.GiveOwn + "), one of another PyTorch (?dialect= in the URL), or none"
	case errors.Is(err, store.ErrUnsupported):
		return "the server is of a PyTorch that has no such command"
	}
	return ""
}
