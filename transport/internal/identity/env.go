package identity

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/weft-project/weft/internal/secret"
)

// The environment of a job's processes says what they are members by: a shared secret, which
// WEFT_TOKEN_FILE may name a file with, or the files of certificates, which come before it.
const (
	TokenVariable = secret.Variable
	CAVariable    = "WEFT_CA"
	CertVariable  = "WEFT_CERT"
	KeyVariable   = "WEFT_KEY"
)

// JobVariable names the job's id; weft run and torchrun set it. Where nobody gives one it is NoJob.
const (
	JobVariable = "TORCHELASTIC_RUN_ID"
	NoJob       = "none"
)

// JobFromEnv reads the variable.
func JobFromEnv() string { return cmp.Or(os.Getenv(JobVariable), NoJob) }

// CertificatesFromEnv reads the variables. Where one is set, all are needed. The Job is left to the
// caller.
func CertificatesFromEnv() (Files, error) {
	files := Files{
		CA: os.Getenv(CAVariable), Cert: os.Getenv(CertVariable), Key: os.Getenv(KeyVariable),
	}
	if files.CA+files.Cert+files.Key != "" && (files.CA == "" || files.Cert == "" || files.Key == "") {
		return files, fmt.Errorf("$%s is %q, $%s %q, $%s %q; expected a file in PEM for each, or none",
			CAVariable, files.CA, CertVariable, files.Cert, KeyVariable, files.Key)
	}
	return files, nil
}

// ErrNoSecret is the error for an environment that names nothing by which a process could show that
// it is of a job.
var ErrNoSecret = errors.New("the job has no token: start the program with weft run, " +
	"or set WEFT_TOKEN to the same secret for all workers (\"weft token\" makes one), " +
	"or WEFT_TOKEN_FILE to a file with it, or give Certificates")

// FromEnv is the identity that the environment names, for a member of that name. log is for
// what becomes of files.
func FromEnv(name string, log *slog.Logger) (*Identity, error) {
	files, err := CertificatesFromEnv()
	if err != nil {
		return nil, err
	}
	if files.CA != "" {
		files.Logger, files.Job = log, JobFromEnv()
		return FromFiles(files)
	}
	token, err := secret.FromEnv(os.Getenv)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, ErrNoSecret
	}
	return FromToken(token, JobFromEnv(), name, time.Now)
}
