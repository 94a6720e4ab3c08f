package identity

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/transport/internal/wire"
)

// The job's id keeps jobs apart that have one secret, or one CA. It is part of every protocol's
// name (ALPN), as a hash, for an id may be any bytes. Where certificates are the user's own, a URI
// in each says of which job it is, and under which names its holder may come:
//
//	weft://JOB/NAME or weft://JOB/NAME?rank=N

// anotherJob is what it means that two ends have no protocol in common.
const anotherJob = "it is of another job's id, or of another version of Weft"

// InJob is a protocol's name for one job.
func InJob(id *Identity, protocol string) string {
	sum := sha256.Sum256([]byte("weft job id\x00" + id.job))
	return protocol + " " + hex.EncodeToString(sum[:16])
}

func (id *Identity) forJob(protocols []string) []string {
	var named []string
	for _, p := range protocols {
		named = append(named, InJob(id, p))
	}
	return named
}

// jobRule is for ids that a certificate can name, as the host of a URI.
var jobRule = regexp.MustCompile(`^[A-Za-z0-9._-]*$`)

// claim is what a certificate says of its holder, for one job.
type claim struct {
	name string
	rank int // -1: any
}

// claims are those that a certificate makes for a job.
func claims(leaf *x509.Certificate, job string) []claim {
	var all []claim
	for _, u := range leaf.URIs {
		name, ok := strings.CutPrefix(u.Path, "/")
		if u.Scheme != "weft" || u.Host != job || !ok || name == "" {
			continue
		}
		c := claim{name, -1}
		if u.RawQuery != "" {
			rank, err := strconv.ParseUint(strings.TrimPrefix(u.RawQuery, "rank="), 10, 31)
			if err != nil || !strings.HasPrefix(u.RawQuery, "rank=") {
				continue
			}
			c.rank = int(rank)
		}
		all = append(all, c)
	}
	return all
}

// checkJob refuses a certificate that is not for a job.
func checkJob(leaf *x509.Certificate, job string) error {
	if len(claims(leaf, job)) > 0 {
		return nil
	}
	return fmt.Errorf("%w: the certificate of %q is not for the job %q%s; expected one with the subjectAltName %s", wire.ErrIdentity, leaf.Subject.CommonName, job, found(leaf),
		uriFor(job, "NAME"))
}

// noJobError is ErrIdentity in words for who gave no job's id.
type noJobError string

func (e noJobError) Error() string { return string(e) }
func (e noJobError) Unwrap() error { return wire.ErrIdentity }

// checkOwnJob is checkJob for this worker's own certificate, which tells a job's id that nobody
// gave.
func checkOwnJob(leaf *x509.Certificate, job, file string) error {
	var jobs []string
	for _, u := range leaf.URIs {
		if u.Scheme == "weft" && u.Host != "" && !slices.Contains(jobs, u.Host) {
			jobs = append(jobs, u.Host)
		}
	}
	if unnamed := job == "" || job == NoJob; unnamed && jobs != nil && !slices.Contains(jobs, job) {
		return noJobError(fmt.Sprintf("transport: the job's id is missing: %s is for the job %s: give --rdzv-id %s, or in a program $%s or Config.Job",
			file, strings.Join(jobs, ", "), jobs[0], JobVariable))
	}
	if err := checkJob(leaf, job); err != nil {
		return fmt.Errorf("transport: peers would refuse %s: %w", file, err)
	}
	return nil
}

// found says what a certificate has in the place of what was expected.
func found(leaf *x509.Certificate) string {
	var have []string
	for _, u := range leaf.URIs {
		if u.Scheme == "weft" {
			have = append(have, u.String())
		}
	}
	if have == nil {
		return ""
	}
	return fmt.Sprintf(", but has %q", have)
}

// uriFor is what to write for openssl.
func uriFor(job, name string) string {
	return "URI:" + (&url.URL{Scheme: "weft", Host: job, Path: "/" + name}).String()
}

// Vouches says whether a certificate for the identity's job lets its holder come under that name
// and rank.
func Vouches(id *Identity, chain []*x509.Certificate, name string, rank int) error {
	if id.files == nil { // who has the job's secret can make certificates for every name
		return nil
	}
	if len(chain) == 0 {
		return fmt.Errorf("%w: the peer shows no certificate", wire.ErrIdentity)
	}
	if slices.ContainsFunc(claims(chain[0], id.job), func(c claim) bool { return c.name == name && (c.rank < 0 || c.rank == rank) }) {
		return nil
	}
	return fmt.Errorf("%w: the certificate of %q is not for %s of rank %d%s; expected the subjectAltName %s, with ?rank=%d if it is to be for that rank alone", wire.ErrIdentity,
		chain[0].Subject.CommonName, name, rank, found(chain[0]), uriFor(id.job, name), rank)
}

// Names are those under which peers take this worker, at one rank or any. With a shared secret they
// take it under every name, and there are none.
func (id *Identity) Names() []string {
	if id.files == nil {
		return nil
	}
	own, err := id.certificate()
	if err != nil {
		return nil
	}
	var names []string
	for _, c := range claims(own.Leaf, id.job) {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
	}
	return names
}

// Vouches says whether peers will take this worker for the one of that name and rank. With a shared
// secret they will: each member has the full authority of the job.
func (id *Identity) Vouches(name string, rank int) error {
	if id.files == nil {
		return nil
	}
	own, err := id.certificate()
	if err != nil {
		return err
	}
	return Vouches(id, []*x509.Certificate{own.Leaf}, name, rank)
}
