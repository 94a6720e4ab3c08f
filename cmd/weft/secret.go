package main

import (
	"fmt"
	"strings"

	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/secret"
)

// maxSecretFile bounds what is read of a file with a secret, which is a line, not a document.
const maxSecretFile = 4 << 10

// readToken reads the job's secret; no file means none, which leaves the choice to the agent.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	token, err := readSecret(path)
	if err == nil {
		if err = secret.Check(token); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	return token, nil
}

// readSecret reads the one line of a file that its user alone can read. Its errors begin with the file's name, or what was done with it.
func readSecret(path string) (string, error) {
	b, err := private.ReadSecret(path, maxSecretFile)
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(b))
	if line == "" || strings.ContainsAny(line, "\n\x00") {
		return "", fmt.Errorf("%s: expected one line with the secret", path)
	}
	return line, nil
}
