package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := checkSecret(file); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	b, err := io.ReadAll(io.LimitReader(file, maxSecretFile+1))
	if err != nil {
		return "", err
	}
	line := strings.TrimSpace(string(b))
	if line == "" || len(b) > maxSecretFile || strings.ContainsAny(line, "\n\x00") {
		return "", fmt.Errorf("%s: expected one line of at most %d bytes with the secret", path, maxSecretFile)
	}
	return line, nil
}

// errOpen is that a secret is none.
var errOpen = errors.New("others can read this secret")
