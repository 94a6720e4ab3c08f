package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// secretFlags say by what members of a job show that they are: its secret, or certificates.
type secretFlags struct {
	tokenFile string
	files     transport.IdentityFiles
}

const (
	tokenUsage = "file with the job's shared secret, which nobody else can read (default the one that $" +
		secret.FileVariable + " names, or the secret itself in $" + secret.Variable + ")"
	caUsage = "the job's CA in PEM, with --cert and --key in place of the secret (default $" +
		rpc.CAVariable + ")"
	certUsage = "a certificate of that CA (default $" + rpc.CertVariable + ")"
	keyUsage  = "its key (default $" + rpc.KeyVariable + ")"

	// giveOwn tells who is refused what a job's members show.
	giveOwn = "give the job's own secret, by --token-file or $" + secret.Variable +
		", or its certificates, by --ca, --cert and --key"
)

// register declares the flags by str.
func (f *secretFlags) register(str func(p *string, name, value, usage string)) {
	str(&f.tokenFile, "token-file", "", tokenUsage)
	str(&f.files.CA, "ca", "", caUsage)
	str(&f.files.Cert, "cert", "", certUsage)
	str(&f.files.Key, "key", "", keyUsage)
}

// given says whether a flag names a secret, or a certificate.
func (f secretFlags) given() bool { return f.tokenFile != "" || f.certified() }

func (f secretFlags) certified() bool { return f.files.CA+f.files.Cert+f.files.Key != "" }

// certificates are those of the flags, else of the environment, unless a flag names a secret.
func (f secretFlags) certificates() (transport.IdentityFiles, error) {
	switch {
	case f.certified() && f.tokenFile != "":
		return f.files, errors.New("--token-file: a job has a secret, or certificates " +
			"(--ca, --cert and --key); give one of them")
	case f.tokenFile != "":
		return transport.IdentityFiles{}, nil
	case !f.certified():
		return rpc.CertificatesFromEnv()
	}
	var missing []string
	for _, flag := range f.list() {
		if flag.value == "" {
			missing = append(missing, flag.name)
		}
	}
	if missing != nil {
		return f.files, fmt.Errorf("--ca, --cert and --key: expected a file in PEM for each; missing: %s", strings.Join(missing, ", "))
	}
	return f.files, nil
}

// named is a flag with its value.
type named struct{ name, value string }

// list has the flags for certificates.
func (f secretFlags) list() []named {
	return []named{{"--ca", f.files.CA}, {"--cert", f.files.Cert}, {"--key", f.files.Key}}
}

// line is a command line for a shell, with what these flags give behind it.
func (f secretFlags) line(words ...string) string {
	for _, flag := range append(f.list(), named{"--token-file", f.tokenFile}) {
		if flag.value != "" {
			words = append(words, flag.name, flag.value)
		}
	}
	plain := regexp.MustCompile(`^[\w@%+=:,./-]+$`)
	for i, w := range words {
		if !plain.MatchString(w) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// identify makes the identity of a member with these certificates, in a job; "" is none.
func (f secretFlags) identify(files transport.IdentityFiles, job string, log *slog.Logger) (*transport.Identity, error) {
	files.Job, files.Logger = cmp.Or(job, rpc.NoJob), log
	id, err := transport.IdentityFromFiles(files)
	if err != nil {
		origin := "$" + rpc.CAVariable + ", $" + rpc.CertVariable + " and $" + rpc.KeyVariable
		if f.certified() {
			origin = "--ca, --cert and --key"
		}
		lines := strings.ReplaceAll(err.Error(), "transport: ", "")
		return nil, blamed{origin + ": " + lines, err}
	}
	return id, nil
}

// fileToken is the job's secret that lies in the file of the flag, "" where none was named.
func (f secretFlags) fileToken() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	token, err := secret.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return token, nil
}

// token is the job's secret, by the flag, else from the environment; "" where there is none.
func (f secretFlags) token() (string, error) {
	if f.tokenFile == "" {
		return secret.FromEnv(os.Getenv)
	}
	return f.fileToken()
}

// identityFlags say by what a command shows that it is of a job.
type identityFlags struct {
	secretFlags
	job string // its id, as given
}

func (f *identityFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.job, "rdzv-id", "", "the job's id, as for weft run, which is in all keys that are made of the secret (default $"+rpc.JobVariable+", or "+rpc.NoJob+")")
	f.secretFlags.register(flags.StringVar)
}

// identity is that of a member of the job: by its files where they are given, else as its workers
// find theirs. option is what needs it, and name what certificates made from the secret are called.
func (f identityFlags) identity(option, name string, log *slog.Logger) (*transport.Identity, error) {
	files, err := f.certificates()
	if err != nil {
		return nil, err
	}
	job := cmp.Or(f.job, rpc.JobFromEnv())
	if files.CA != "" {
		return f.identify(files, job, log)
	}
	token, err := f.token()
	if err == nil && token == "" {
		err = errors.New(option + " needs the job's secret, or certificates: " + giveOwn)
	}
	if err != nil {
		return nil, err
	}
	return transport.IdentityFromToken(token, job, name, time.Now)
}

// checkPlain refuses a secret for who wants to speak plain text.
func (f identityFlags) checkPlain(plain bool) error {
	if plain && f.given() {
		return errors.New("--tls=false: plain text shows no secret: leave it out, or --token-file, or --ca, --cert and --key")
	}
	return nil
}

// checkSecretFlags looks at what every command has in common that needs a secret.
func checkSecretFlags(cmd *cobra.Command, _ []string) error {
	flags := cmd.Flags()
	if flags.Lookup("token-file") == nil {
		return nil
	}
	for _, name := range []string{"token-file", "ca", "cert", "key"} {
		if flags.Changed(name) && flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s: expected a file, got an empty name", name)
		}
	}
	warnUnused(cmd)
	return nil
}

// warnUnused warns who gives both a secret and certificates, and one of them in the environment.
// What a flag gives counts, and certificates count more than a secret, for they are stricter. That
// is no error, as an agent sets the one for its workers, whatever else they have.
func warnUnused(cmd *cobra.Command) {
	flags := cmd.Flags()
	if flags.Changed("ca") {
		return
	}
	var certificates string
	for _, name := range []string{rpc.KeyVariable, rpc.CertVariable, rpc.CAVariable} {
		if os.Getenv(name) != "" {
			certificates = "$" + name
		}
	}
	token, byFlag := secret.Named(os.Getenv), ""
	if flags.Changed("token-file") {
		byFlag = "--token-file"
	} else if pet := petVariable("token-file"); readsPET(cmd) && os.Getenv(pet) != "" {
		byFlag = "$" + pet
	}
	switch {
	case certificates == "" || readsPET(cmd) && os.Getenv(petVariable("ca")) != "":
	case byFlag != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "weft: %s is not used, for %s names the job's secret: leave one of the two out\n", certificates, byFlag)
	case token != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "weft: %s is not used, for %s names certificates: unset one of the two\n", token, certificates)
	}
}
