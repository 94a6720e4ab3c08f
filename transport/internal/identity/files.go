package identity

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/transport/internal/wire"
)

const (
	lookEvery    = time.Second            // the files are looked at no more often
	maxKeyFile   = 1 << 20                // bytes; a certificate may stand in it, too
	maxCertFile  = 16 << 20               // bytes; a CA file may hold many certificates
	lookPatience = 200 * time.Millisecond // a handshake waits no longer for a slow disk, and goes on with what is known
)

// Files names a user's own certificates; all files are PEM.
type Files struct {
	CA   string // every certificate of any CA in it counts as a member of the job that it names
	Cert string // this worker's, and what is between it and the CA
	Key  string // which nobody but its user, or root, may read (mode 0600 or 0400)
	// Job is the job's id: letters, digits, ".", "_" and "-". A certificate is of the job whose id
	// and workers it names as its subjectAltName: URI:weft://JOB/NAME for the worker NAME of any
	// rank, URI:weft://JOB/NAME?rank=N for one rank. It may name several.
	Job string
	// Logger hears when changed files were taken, and why others were not. nil means
	// slog.Default().
	Logger *slog.Logger
}

// FromFiles uses the user's own CA, certificate and key. The files are looked at again while links
// are made, at most once a second, so that they can be renewed while the job runs: where the three
// fit together they are taken, and until then those before stay in use. Links that exist live on.
// To change the CA, first let every worker's CA file hold the old one and the new one.
func FromFiles(files Files) (*Identity, error) {
	read := func(name string) ([]byte, error) {
		if name == files.Key {
			return private.ReadKey(name, maxKeyFile)
		}
		return private.ReadFile(name, maxCertFile)
	}
	return fromFiles(files, read, time.Now)
}

func fromFiles(names Files, read func(string) ([]byte, error), now func() time.Time) (*Identity, error) {
	names.Logger = cmp.Or(names.Logger, slog.Default())
	var missing []error
	for i, name := range []string{names.CA, names.Cert, names.Key} {
		if name == "" {
			missing = append(missing, fmt.Errorf("transport: IdentityFiles.%s is empty; expected a file in PEM", []string{"CA", "Cert", "Key"}[i]))
		}
	}
	if !jobRule.MatchString(names.Job) {
		missing = append(missing, fmt.Errorf("transport: the job's id is %q; certificates can name one of A-Z a-z 0-9 . _ -", names.Job))
	}
	if missing != nil {
		return nil, errors.Join(missing...)
	}
	f := &loadedFiles{Files: names, read: read}
	f.current, f.why = f.readAll()
	id := &Identity{job: names.Job, now: now, files: f}
	if f.why != nil {
		return nil, f.why
	}
	f.looked = now()
	var err error
	id.roots, id.leaf, err = f.load(f.current, f.looked)
	if err != nil {
		return nil, err
	}
	return id, nil
}

// loadedFiles is what an Identity knows of its files. Its lower fields are guarded by the
// Identity's mu, or belong to who looks.
type loadedFiles struct {
	Files
	read func(string) ([]byte, error)

	expired bool // it was told that the certificate in use has ended
	looked  time.Time
	looking chan struct{} // closed when who looks has looked; nil when nobody does

	current [3]string // what was found when somebody last looked: CA, certificate, key
	why     error     // why it could not be read
}

func (f *loadedFiles) readAll() (found [3]string, err error) {
	for i, name := range []string{f.CA, f.Cert, f.Key} {
		b, err := f.read(name)
		if err != nil {
			return found, fmt.Errorf("transport: read the %s: %w", []string{"CA", "certificate", "key"}[i], err)
		}
		found[i] = string(b)
	}
	return found, nil
}

// load makes sense of the files' contents.
func (f *loadedFiles) load(found [3]string, now time.Time) (*x509.CertPool, *tls.Certificate, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(found[0])) {
		return nil, nil, fmt.Errorf("transport: %s holds no certificate in PEM", f.CA)
	}
	pair, err := tls.X509KeyPair([]byte(found[1]), []byte(found[2]))
	if err != nil {
		return nil, nil, fmt.Errorf("transport: read the certificate %s with the key %s: %w", f.Cert, f.Key, err)
	}
	chain := []*x509.Certificate{pair.Leaf}
	for _, der := range pair.Certificate[1:] {
		between, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, nil, fmt.Errorf("transport: read %s: %w", f.Cert, err)
		}
		chain = append(chain, between)
	}
	if err := f.checkOwn(&pair, now); err != nil {
		return nil, nil, err
	}
	if err := verifyChain(chain, roots, now, "it with "+f.CA); err != nil {
		return nil, nil, fmt.Errorf("transport: peers would refuse %s: %w", f.Cert, err)
	}
	if err := checkOwnJob(pair.Leaf, f.Job, f.Cert); err != nil {
		return nil, nil, err
	}
	return roots, &pair, nil
}

// checkOwn says whether it is of use to show the certificate.
func (f *loadedFiles) checkOwn(own *tls.Certificate, now time.Time) error {
	if now.After(own.Leaf.NotAfter) {
		return fmt.Errorf("transport: %w: this worker's own certificate, %s, ended at %s; renew it", wire.ErrIdentity, f.Cert, own.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// own gives the certificate in use, unless it has ended: then its owner hears of it from here,
// once, and not only from peers.
func (f *loadedFiles) own(leaf *tls.Certificate, now time.Time) (*tls.Certificate, error) {
	err := f.checkOwn(leaf, now)
	if err != nil && !f.expired {
		f.Logger.Error("weft: no links can be made", "detail", err)
	}
	if f.expired = err != nil; f.expired {
		return nil, err
	}
	return leaf, nil
}

// refresh looks at the user's files, if there are any and it is time to.
func (id *Identity) refresh() {
	f := id.files
	if f == nil {
		return
	}
	now := id.now()
	id.mu.Lock()
	if since := now.Sub(f.looked); f.looking == nil && (since >= lookEvery || since < 0) {
		f.looked, f.looking = now, make(chan struct{})
		go id.look(f.looking)
	}
	looking := f.looking
	id.mu.Unlock()
	if looking == nil {
		return
	}
	patience := time.NewTimer(lookPatience)
	defer patience.Stop()
	select {
	case <-looking:
	case <-patience.C:
	}
}

// look reads the files and takes what has changed, if it is whole. Each failure is told once.
func (id *Identity) look(done chan struct{}) {
	defer close(done)
	f := id.files
	found, why := f.readAll()
	news := why == nil && !slices.Equal(found[:], f.current[:])
	if why != nil && (f.why == nil || f.why.Error() != why.Error()) {
		f.Logger.Warn("weft: cannot read this worker's certificates; those that were read before stay in use", "detail", why)
	}
	var roots *x509.CertPool
	var leaf *tls.Certificate
	if news {
		f.current = found
		var err error
		if roots, leaf, err = f.load(found, id.now()); err != nil {
			f.Logger.Warn("weft: changed certificates are not taken; those before stay in use", "detail", err)
		} else {
			f.Logger.Info("weft: changed certificates are taken", "certificate", f.Cert, "until", leaf.Leaf.NotAfter)
		}
	}
	f.why = why
	id.mu.Lock()
	defer id.mu.Unlock()
	f.looking = nil
	if leaf != nil {
		id.roots, id.leaf = roots, leaf
	}
}
