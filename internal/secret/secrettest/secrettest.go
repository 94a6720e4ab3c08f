package secrettest

import (
	"crypto/sha256"

	"github.com/weft-project/weft/internal/secret"
)

// Token is the same for the same text. It is a token as weft token makes them, which no argon2id
// delays.
func Token(text string) string { return secret.Token(sha256.Sum256([]byte(text))) }
