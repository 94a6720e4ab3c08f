package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// identityFlags say by what a command shows that it is of a job.
type identityFlags struct {
	job       string // its id, as given
	tokenFile string
	files     transport.IdentityFiles // instead of the token
}

func (f *identityFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.job, "rdzv-id", "", "the job's id, as for weft run, which is in all keys that are made of the secret (default $"+rpc.JobVariable+", or "+rpc.NoJob+")")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the job's shared secret (default $"+elastic.TokenVariable+")")
	flags.StringVar(&f.files.CA, "ca", "", caUsage)
	flags.StringVar(&f.files.Cert, "cert", "", certUsage)
	flags.StringVar(&f.files.Key, "key", "", keyUsage)
}

const (
	caUsage = "the job's CA in PEM, with --cert and --key in place of the secret (default $" +
		rpc.CAVariable + ")"
	certUsage = "a certificate of that CA (default $" + rpc.CertVariable + ")"
	keyUsage  = "its key (default $" + rpc.KeyVariable + ")"
)

// given says whether a flag names an identity.
func (f identityFlags) given() bool { return f.tokenFile != "" || f.files.CA != "" }

// identity is that of a member of the job: by its files where they are given, else as its workers find theirs. option is what needs
// it, and name what certificates made from the secret are called.
func (f identityFlags) identity(option, name string, log *slog.Logger) (*transport.Identity, error) {
	files, err := certificates(f.files, f.tokenFile)
	if err != nil {
		return nil, err
	}
	var id *transport.Identity
	job := cmp.Or(f.job, rpc.JobFromEnv())
	if files.CA != "" {
		files.Logger, files.Job = log, job
		id, err = transport.IdentityFromFiles(files)
	} else {
		token, errToken := jobToken(f.tokenFile, option)
		if errToken != nil {
			return nil, errToken
		}
		id, err = transport.IdentityFromToken(token, job, name, time.Now)
	}
	return id, err
}

// certificates are those of the flags, else of the environment, unless a flag names a token.
func certificates(flags transport.IdentityFiles, tokenFile string) (transport.IdentityFiles, error) {
	given := flags.CA != "" || flags.Cert != "" || flags.Key != ""
	switch {
	case !given && tokenFile != "":
		return transport.IdentityFiles{}, nil
	case !given:
		return rpc.CertificatesFromEnv()
	case flags.CA == "" || flags.Cert == "" || flags.Key == "":
		return flags, errors.New("--ca, --cert and --key: expected a file in PEM for each, or none")
	case tokenFile != "":
		return flags, errors.New("--token-file: a job has a secret, or certificates " +
			"(--ca, --cert and --key); give one of them")
	}
	return flags, nil
}

// twoSecrets warns who gives a secret and certificates in the environment: the certificates count,
// for they are stricter. That is no error, as an agent sets the one for its workers, whatever else
// they have.
func twoSecrets(cmd *cobra.Command, _ []string) {
	flags := cmd.Flags()
	const token, ca = elastic.TokenVariable, rpc.CAVariable
	if flags.Lookup("ca") == nil || os.Getenv(token) == "" || os.Getenv(ca) == "" {
		return
	}
	if flags.Changed("ca") || flags.Changed("token-file") || os.Getenv("PET_CA")+os.Getenv("PET_TOKEN_FILE") != "" {
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"weft: $%s is not used, for $%s names certificates: unset one of the two\n", token, ca)
}

// jobToken is the job's secret, from the file or the environment.
func jobToken(file, option string) (string, error) {
	token, err := readToken(file)
	if err != nil {
		return "", err
	}
	if token == "" {
		token = os.Getenv(elastic.TokenVariable)
	}
	if token == "" {
		return "", fmt.Errorf("%s needs the job's secret: set $%s, or give --token-file (or --ca, --cert and --key), as for the job's workers", option, elastic.TokenVariable)
	}
	return token, nil
}
