package main

import (
	"cmp"
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
	flags.StringVar(&f.files.CA, "ca", "", "the job's CA in PEM, with --cert and --key in place of the secret (default $"+rpc.CAVariable+")")
	flags.StringVar(&f.files.Cert, "cert", "", "a certificate of that CA (default $"+rpc.CertVariable+")")
	flags.StringVar(&f.files.Key, "key", "", "its key (default $"+rpc.KeyVariable+")")
	cmd.MarkFlagsRequiredTogether("ca", "cert", "key")
	cmd.MarkFlagsMutuallyExclusive("token-file", "ca")
}

// given says whether a flag names an identity.
func (f identityFlags) given() bool { return f.tokenFile != "" || f.files.CA != "" }

// identity is that of a member of the job: by its files where they are given, else as its workers find theirs. option is what needs
// it, and name what certificates made from the secret are called.
func (f identityFlags) identity(option, name string, log *slog.Logger) (*transport.Identity, error) {
	files := f.files
	if files.CA == "" && f.tokenFile == "" {
		var err error
		if files, err = rpc.CertificatesFromEnv(); err != nil {
			return nil, err
		}
	}
	var id *transport.Identity
	var err error
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
	if err != nil {
		return nil, &exitError{codeFailed, err}
	}
	return id, nil
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
