package secret

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANewTokenIsRecognisedAndTwoDiffer(t *testing.T) {
	a, b := New(), New()
	require.Regexp(t, "^weft_[a-z2-7]{56}$", a)
	require.NotEqual(t, a, b)
	require.NoError(t, Check(a))
	strong, err := Strengthen(" "+a+"\n", "a job")
	require.NoError(t, err)
	require.Equal(t, a, strong, "a token stays what it is, without the white space")
}

func TestATypingErrorInATokenIsTold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		token := []byte(New())
		i := r.IntN(len(token)-len(prefix)) + len(prefix)
		var wrong string
		switch r.IntN(4) {
		case 0: // another letter
			wrong = string(token[:i]) + string("abcdefghijklmnopqrstuvwxyz234567"[r.IntN(32)]) + string(token[i+1:])
		case 1: // a letter too few
			wrong = string(token[:i]) + string(token[i+1:])
		case 2: // one too many
			wrong = string(token[:i]) + "0" + string(token[i:])
		case 3: // all in capitals
			wrong = strings.ToUpper(string(token))
		}
		if wrong != string(token) {
			require.ErrorContains(t, Check(wrong), "mistyped", wrong)
			_, err := Derive(wrong, "", "CA", 32)
			require.ErrorContains(t, err, "mistyped")
		}
	}
}

func TestAWeakSecretIsRefusedAndTheErrorSaysWhatMakesAGoodOne(t *testing.T) {
	for _, weak := range []string{
		"", "short", strings.Repeat("0", 16), strings.Repeat("0", 4000), "0123456789abcdef", "0123456789abcdef0123456789abcdef", "passwordpassword", "abcabcabcabcabcabcabcabcabcabc",
		"abcdefghijklmnopqrstuvwxyz", "zyxwvutsrqponmlkjihgfedcba", "2026112320261123", "hunter2hunter2", "Password123456789",
		"correcthorsebatterystaple", "Correct Horse Battery Staple", "a-token-for-this-test-only",
	} {
		err := Check(weak)
		require.ErrorIs(t, err, ErrWeak, weak)
		require.ErrorContains(t, err, `"weft token" makes a good one`)
		_, err = Strengthen(weak, "job")
		require.ErrorIs(t, err, ErrWeak, weak)
		_, err = Derive(weak, "job", "CA", 32)
		require.ErrorIs(t, err, ErrWeak, weak)
	}
	for _, good := range []string{
		"correct-horse-battery-staple-violin-teapot-umbrella", "9kV-x2p!mQ_7Lw#3",
		"7f1c0e9b5a8d426394e2b7c06d1f853a", "die Katze läuft über das nasse Dach",
	} {
		require.NoError(t, Check(good), good)
	}
}

// Sixteen random bytes in hex were what the documentation said for long; chance must not refuse
// them.
func TestRandomSecretsAreStrong(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := make([]byte, 16)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		require.NoError(t, Check(hex.EncodeToString(b)))
	}
}

func TestWhatIsDerivedDependsOnSecretJobAndPurpose(t *testing.T) {
	const own = "violin teapot umbrella correct horse battery"
	token := New()
	derive := func(text, job, purpose string) string {
		b, err := Derive(text, job, purpose, 32)
		require.NoError(t, err)
		return string(b)
	}
	one := derive(own, "job", "CA")
	strong, err := Strengthen(own, "job")
	require.NoError(t, err)
	require.Equal(t, one, derive(strong, "job", "CA"), "whoever strengthens it, all make the same")
	elsewhere, err := Strengthen(own, "job2")
	require.NoError(t, err)
	require.NotEqual(t, strong, elsewhere, "what was tried out for one job is worth nothing for another")

	seen := map[string]bool{one: true}
	for _, text := range []string{token, New()} {
		for _, job := range []string{"", "job", "job\x00", "CA\x00job"} {
			for _, purpose := range []string{"CA", "rendezvous"} {
				key := derive(text, job, purpose)
				require.False(t, seen[key])
				seen[key] = true
				require.Equal(t, key, derive(text, job, purpose))
			}
		}
	}
}

func BenchmarkStrengthen(b *testing.B) {
	for b.Loop() {
		if _, err := Strengthen("violin teapot umbrella correct horse battery", "job"); err != nil {
			b.Fatal(err)
		}
	}
}
