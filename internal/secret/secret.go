package secret

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"golang.org/x/crypto/argon2"
)

const (
	prefix   = "weft_"
	keySize  = 32
	sumSize  = 3 // with it the text of a token has no padding
	leastBit = 50

	// The cost of a guess: 64 MiB of memory, and more than 100 ms of a processor of today.
	argonMemory = 64 << 10 // KiB
	argonPasses = 4
)

// makesOne ends an error about a secret.
const makesOne = `"weft token" makes a good one`

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes a token.
func New() string {
	var key [keySize]byte
	_, _ = rand.Read(key[:]) // never fails: the runtime stops the program instead
	return Token(key)
}

// Token writes a key as a token.
func Token(key [keySize]byte) string {
	return prefix + letters.EncodeToString(append(key[:], checksum(key)...))
}

func checksum(key [keySize]byte) []byte {
	sum := sha256.Sum256(append([]byte("weft token checksum\x00"), key[:]...))
	return sum[:sumSize]
}

// parse reads a token. own says that the text is none, but a secret that somebody chose.
func parse(text string) (key [keySize]byte, own bool, err error) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return key, true, nil
	}
	raw, err := letters.DecodeString(text[len(prefix):])
	if err == nil && len(raw) == keySize+sumSize {
		copy(key[:], raw)
		if text == Token(key) {
			return key, false, nil
		}
	}
	return key, false, fmt.Errorf("the job's token is mistyped: it begins with %q as those of weft token do, but a character is wrong, missing or too many", prefix)
}

// Check says what is wrong with a secret, and costs nothing. White space around it does not count.
func Check(text string) error {
	_, own, err := parse(strings.TrimSpace(text))
	if !own {
		return err
	}
	return checkStrength(strings.TrimSpace(text))
}

// Strengthen makes a token of a secret, for one job. A token stays what it is. All members of a job
// make the same.
func Strengthen(text, job string) (string, error) {
	text = strings.TrimSpace(text)
	if err := Check(text); err != nil {
		return "", err
	}
	if _, own, _ := parse(text); !own {
		return text, nil
	}
	salt := sha256.Sum256([]byte("weft salt\x00" + job))
	return Token([keySize]byte(argon2.IDKey([]byte(text), salt[:], argonPasses, argonMemory, 1, keySize))), nil
}

// Derive makes n bytes for a purpose of one job.
func Derive(text, job, purpose string, n int) ([]byte, error) {
	token, err := Strengthen(text, job)
	if err != nil {
		return nil, err
	}
	key, _, err := parse(token)
	if err != nil {
		return nil, err
	}
	derived, err := hkdf.Key(sha256.New, key[:], nil, "weft "+purpose+"\x00"+job, n)
	if err != nil {
		return nil, fmt.Errorf("derive the job's key: %w", err)
	}
	return derived, nil
}

// ErrWeak is for a secret that could be guessed.
var ErrWeak = errors.New("the job's secret is too weak")

// checkStrength refuses a secret that is worth less than 50 bits.
func checkStrength(text string) error {
	if worth := bits(text); worth < leastBit {
		return fmt.Errorf("%w: it is worth about %d bits, and %d are needed; %s", ErrWeak, int(worth), leastBit, makesOne)
	}
	return nil
}

// A letter of a word is worth less than one of a random text, and so is a sign that comes between
// words.
const (
	wordLeast  = 4   // letters, of which all but the first are small
	letterBits = 1.5 // of a text in a natural language, at most: Shannon, "Prediction and Entropy of Printed English", 1951
	signBits   = 1   // of a sign that was there before
)

// bits estimates how hard a secret is to guess. Letters of words count letterBits each. Any other
// character is worth the binary logarithm of how many different characters the secret has, and
// nothing where it follows the one before it for the second time ("abab"), or goes on as the two
// before it did ("1234", "ccc").
func bits(text string) (worth float64) {
	chars := []rune(text)
	kinds, pairs := map[rune]bool{}, map[[2]rune]bool{}
	for _, c := range chars {
		kinds[c] = true
	}
	random := math.Log2(float64(max(len(kinds), 1)))
	seen, words := map[rune]bool{}, inWords(chars)
	for i, c := range chars {
		goesOn := i >= 2 && c-chars[i-1] == chars[i-1]-chars[i-2]
		repeats := i >= 1 && pairs[[2]rune{chars[i-1], c}]
		switch sign := !unicode.IsLetter(c) && !unicode.IsDigit(c); {
		case goesOn || repeats:
		case words[i]:
			worth += min(letterBits, random)
		case sign && seen[c]:
			worth += min(signBits, random)
		default:
			worth += random
		}
		if seen[c] = true; i >= 1 {
			pairs[[2]rune{chars[i-1], c}] = true
		}
	}
	return worth
}

// inWords says which characters are letters of words.
func inWords(chars []rune) []bool {
	words := make([]bool, len(chars))
	for from := 0; from < len(chars); {
		to := from + 1
		for unicode.IsLetter(chars[from]) && to < len(chars) && unicode.IsLower(chars[to]) {
			to++
		}
		for i := from; to-from >= wordLeast && i < to; i++ {
			words[i] = true
		}
		from = to
	}
	return words
}
