package secrets

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Flags say by what members of a job show that they are: its secret, or certificates.
type Flags struct {
	tokenFile string
	files     transport.IdentityFiles
}

// The words of flags and errors that several commands have in common.
const (
	TokenUsage = "file with the job's shared secret, which nobody else can read (default the one that $" +
		secret.FileVariable + " names, or the secret itself in $" + secret.Variable + ")"
	caUsage = "the job's CA in PEM, with --cert and --key in place of the secret (default $" +
		rpc.CAVariable + ")"
	certUsage = "a certificate of that CA (default $" + rpc.CertVariable + ")"
	keyUsage  = "its key (default $" + rpc.KeyVariable + ")"

	// GiveOwn tells who is refused what a job's members show.
	GiveOwn = "give the job's own secret, by --token-file or $" + secret.Variable +
		", or its certificates, by --ca, --cert and --key"
)

// Register declares the flags by str.
func (f *Flags) Register(str func(p *string, name, value, usage string)) {
	str(&f.tokenFile, "token-file", "", TokenUsage)
	str(&f.files.CA, "ca", "", caUsage)
	str(&f.files.Cert, "cert", "", certUsage)
	str(&f.files.Key, "key", "", keyUsage)
}

// Given says whether a flag names a secret, or a certificate.
func (f Flags) Given() bool { return f.tokenFile != "" || f.certified() }

func (f Flags) certified() bool { return f.files.CA+f.files.Cert+f.files.Key != "" }

// Certificates are those of the flags, else of the environment, unless a flag names a secret.
func (f Flags) Certificates() (transport.IdentityFiles, error) {
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
func (f Flags) list() []named {
	return []named{{"--ca", f.files.CA}, {"--cert", f.files.Cert}, {"--key", f.files.Key}}
}

// Line is a command line for a shell, with what these flags give behind it.
func (f Flags) Line(words ...string) string {
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

// Identify makes the identity of a member with these certificates, in a job; "" is none.
func (f Flags) Identify(files transport.IdentityFiles, job string, log *slog.Logger) (*transport.Identity, error) {
	files.Job, files.Logger = cmp.Or(job, rpc.NoJob), log
	id, err := transport.IdentityFromFiles(files)
	if err != nil {
		origin := "$" + rpc.CAVariable + ", $" + rpc.CertVariable + " and $" + rpc.KeyVariable
		if f.certified() {
			origin = "--ca, --cert and --key"
		}
		lines := strings.ReplaceAll(err.Error(), "transport: ", "")
		if holdsKey(files.Cert) && !holdsKey(files.Key) {
			lines += "\nthe certificate and its key look swapped: " + files.Cert + " holds a private key"
		}
		return nil, cli.Reword(origin+": "+lines, err)
	}
	return id, nil
}

// holdsKey says whether a file has a private key in PEM, and no certificate.
func holdsKey(name string) bool {
	text, err := private.ReadSecret(name, maxPEM)
	return err == nil && bytes.Contains(text, []byte("PRIVATE KEY-----")) && !bytes.Contains(text, []byte("BEGIN CERTIFICATE-----"))
}

// maxPEM bounds what is read of a file to see what it holds, in bytes.
const maxPEM = 1 << 20

// FileToken is the job's secret that lies in the file of the flag, "" where none was named.
func (f Flags) FileToken() (string, error) {
	if f.tokenFile == "" {
		return "", nil
	}
	token, err := secret.ReadFile(f.tokenFile)
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return token, nil
}

// Token is the job's secret, by the flag, else from the environment; "" where there is none.
func (f Flags) Token() (string, error) {
	if f.tokenFile == "" {
		return secret.FromEnv(os.Getenv)
	}
	return f.FileToken()
}

// Member has the flags by which a command shows that it is of a job.
type Member struct {
	Flags
	Job string // its id, as given
}

// Register declares the flags of a command.
func (f *Member) Register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Job, "rdzv-id", "", "the job's id, as for weft run, which is in all keys that are made of the secret (default $"+rpc.JobVariable+", or "+rpc.NoJob+")")
	f.Flags.Register(flags.StringVar)
}

// Identity is that of a member of the job: by its files where they are given, else as its workers
// find theirs. option is what needs it, and name what certificates made from the secret are called.
func (f Member) Identity(option, name string, log *slog.Logger) (*transport.Identity, error) {
	files, err := f.Certificates()
	if err != nil {
		return nil, err
	}
	job := cmp.Or(f.Job, rpc.JobFromEnv())
	if files.CA != "" {
		return f.Identify(files, job, log)
	}
	token, err := f.Token()
	if err == nil && token == "" {
		err = errors.New(option + " needs the job's secret, or certificates: " + GiveOwn)
	}
	if err != nil {
		return nil, err
	}
	return transport.IdentityFromToken(token, job, name, time.Now)
}

// CheckPlain refuses a secret for who wants to speak plain text.
func (f Member) CheckPlain(plain bool) error {
	if plain && f.Given() {
		return errors.New("--tls=false: plain text shows no secret: leave it out, or --token-file, or --ca, --cert and --key")
	}
	return nil
}

// Check looks at what every command has in common that needs a secret.
func Check(cmd *cobra.Command, _ []string) error {
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
	} else if pet := cli.PetVariable("token-file"); cli.ReadsPET(cmd) && os.Getenv(pet) != "" {
		byFlag = "$" + pet
	}
	switch {
	case certificates == "" || cli.ReadsPET(cmd) && os.Getenv(cli.PetVariable("ca")) != "":
	case byFlag != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "weft: %s is not used, for %s names the job's secret: leave one of the two out\n", certificates, byFlag)
	case token != "":
		fmt.Fprintf(cmd.ErrOrStderr(), "weft: %s is not used, for %s names certificates: unset one of the two\n", token, certificates)
	}
}
