package secret

import (
	"fmt"
	"strings"

	"github.com/weft-project/weft/internal/private"
)

// The environment of a job's processes gives the job's secret by one of these variables: itself, or
// the name of a file with it.
const (
	Variable     = "WEFT_TOKEN"
	FileVariable = "WEFT_TOKEN_FILE"
)

// maxFile bounds what is read of a file with a secret, which is a line, not a document.
const maxFile = 4 << 10

// Named says which of the two variables are set, with a $ in front; "" is neither. get is
// os.Getenv, or looks into another environment.
func Named(get func(string) string) string {
	var set []string
	for _, name := range []string{Variable, FileVariable} {
		if strings.TrimSpace(get(name)) != "" {
			set = append(set, "$"+name)
		}
	}
	return strings.Join(set, " and ")
}

// FromEnv is the job's secret, as an environment gives it; "" where it gives none. Its errors begin
// with the variable that is to blame.
func FromEnv(get func(string) string) (token string, err error) {
	named := Named(get)
	token, file := strings.TrimSpace(get(Variable)), get(FileVariable)
	switch {
	case named == "":
		return "", nil
	case token != "" && file != "":
		return "", fmt.Errorf("%s are both set: expected the job's secret in the one, or a file with it in the other", named)
	case file != "":
		token, err = ReadFile(file)
	default:
		err = Check(token)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", named, err)
	}
	return token, nil
}

// ReadFile reads the job's secret from a file that its user alone can read. Its errors begin with
// the file's name, or what was done with it.
func ReadFile(path string) (string, error) {
	token, err := ReadLine(path)
	if err != nil {
		return "", err
	}
	if err := Check(token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return token, nil
}

// ReadLine reads any secret, such as a password, as ReadFile does.
func ReadLine(path string) (string, error) {
	b, err := private.ReadSecret(path, maxFile)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(b))
	if line == "" || strings.ContainsAny(line, "\n\x00") {
		return "", fmt.Errorf("%s: expected one line with the secret", path)
	}
	return line, nil
}
