package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/internal/secret/secrettest"
)

func TestASpecWithManyFaultsListsThemAll(t *testing.T) {
	t.Parallel()
	_, err := Run(t.Context(), Spec{
		MinNodes: 2, WantRank: 6, MasterAddr: "host:1", MasterPort: 70000, Grace: -time.Second,
		Token: "a\x00b", Env: []string{"loose"},
	})
	require.ErrorIs(t, err, ErrInvalidSpec)
	for _, want := range []string{
		"program: expected the program", "processes per node: expected 1 to 4096, got 0", "several of them need an endpoint",
		"node rank: expected 0 to 1, got 5", `got "host:1"`, "got 70000", "grace: expected a positive", "token: it holds a zero byte",
		"environment entry 0",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestAProgramThatCannotRunSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	plain := filepath.Join(dir, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o644))
	require.NoError(t, os.WriteFile("here", []byte("#!/bin/sh\n"), 0o755))
	for program, want := range map[string]string{
		"no-such-program-anywhere": "is not in PATH; give its path, or build it first",
		"./missing":                "does not exist; give its path, or build it first",
		plain:                      "is not executable; run chmod +x",
		dir:                        "is a folder; name the program in it",
		"here":                     `in the current folder; to run it say "./here"`,
	} {
		_, err := Run(t.Context(), Spec{Program: program, NprocPerNode: 1})
		require.ErrorIs(t, err, ErrInvalidSpec)
		require.ErrorContains(t, err, want)
	}
	_, err := lookup("./here")
	require.NoError(t, err)
}

func TestTheTokenIsKeptWhereThereIsOneAndFreshOtherwise(t *testing.T) {
	t.Parallel()
	make := func(s Spec) Spec {
		s, err := s.MakeSecrets()
		require.NoError(t, err)
		again, err := s.MakeSecrets()
		require.NoError(t, err)
		require.Equal(t, s, again)
		return s
	}
	one, two := secrettest.Token("one"), secrettest.Token("two")
	given := make(Spec{Token: one, Env: []string{"WEFT_TOKEN=" + two}})
	require.Equal(t, one, given.Token)
	require.Equal(t, NoRunID, given.RunID, "others know the token, so they must know the id")
	require.Equal(t, two, make(Spec{Env: []string{"WEFT_TOKEN=old", "WEFT_TOKEN=" + two}}).Token)
	a, b := make(Spec{Env: []string{}}), make(Spec{Env: []string{}})
	require.NoError(t, secret.Check(a.Token))
	require.NotEqual(t, a.Token, b.Token)
	several := make(Spec{MaxNodes: 2, Endpoint: "localhost:1", Env: []string{}})
	require.Empty(t, several.Token, "another node would make another")
	for _, kv := range several.environ(0, rdzv.Placement{}, "localhost:1", "", false) {
		require.NotContains(t, kv, elastic.TokenVariable)
	}
	require.NotEqual(t, a.RunID, b.RunID)
	require.Equal(t, NoRunID, several.RunID)
}

func TestATokenInAFileThatAVariableNamesIsTheJobsAndWorkersGetItAlone(t *testing.T) {
	t.Parallel()
	token := secrettest.Token("job")
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	byFile := []string{"WEFT_TOKEN_FILE=" + file}
	s, err := Spec{Env: byFile}.MakeSecrets()
	require.NoError(t, err)
	require.Equal(t, token, s.Token)
	env := parseEnv(s.environ(0, rdzv.Placement{}, "localhost:1", "", false))
	require.Equal(t, token, env["WEFT_TOKEN"])
	require.NotContains(t, env, "WEFT_TOKEN_FILE", "a worker that found both would refuse them")
	s, err = Spec{Token: secrettest.Token("given"), Env: byFile}.MakeSecrets()
	require.NoError(t, err)
	require.Equal(t, secrettest.Token("given"), s.Token)
	for _, env := range [][]string{append(byFile, "WEFT_TOKEN="+token), {"WEFT_TOKEN_FILE=" + file + "-none"}} {
		_, err = Run(t.Context(), Spec{Program: "/bin/true", NprocPerNode: 0, Env: env})
		require.ErrorIs(t, err, ErrInvalidSpec)
		require.ErrorContains(t, err, "$WEFT_TOKEN_FILE")
		require.ErrorContains(t, err, "processes per node", "with all else that is wrong")
	}
}

func TestASecretThatSomebodyChoseBecomesAToken(t *testing.T) {
	t.Parallel()
	const own = "violin teapot umbrella correct horse battery"
	s, err := Spec{Token: own, RunID: "seven"}.MakeSecrets()
	require.NoError(t, err)
	want, err := secret.Strengthen(own, "seven")
	require.NoError(t, err)
	require.Equal(t, want, s.Token, "so that no worker pays for it again")
	for _, weak := range []string{"0000000000000000", "short"} {
		_, err = Spec{Token: weak}.MakeSecrets()
		require.ErrorIs(t, err, secret.ErrWeak)
		_, err = Run(t.Context(), Spec{Program: "/bin/true", NprocPerNode: 1, Env: []string{"WEFT_TOKEN=" + weak}})
		require.ErrorIs(t, err, ErrInvalidSpec)
		require.ErrorContains(t, err, `"weft token" makes a good one`)
	}
}

func TestWhatNodesShowOfTheirTokenDependsOnTokenAndJob(t *testing.T) {
	seen := map[string]bool{}
	for _, token := range []string{secrettest.Token("one"), secrettest.Token("two")} {
		for _, job := range []string{"", "a", "b"} {
			proof, err := Proof(token, job)
			require.NoError(t, err)
			require.Regexp(t, "^[0-9a-f]{8}$", proof)
			require.False(t, seen[proof])
			seen[proof] = true
		}
	}
}

func TestTheEnvironmentKeepsTheUsersChoices(t *testing.T) {
	env := func(s Spec, terminal bool) map[string]string {
		return parseEnv(s.populate().environ(0, rdzv.Placement{Nodes: 1, World: 1}, "127.0.0.1:29500", "", terminal))
	}
	two := Spec{NprocPerNode: 2, Env: []string{"OMP_NUM_THREADS=4", "RANK=77", "WEFT_TTY=1", "PATH=/x"}}
	got := env(two, false)
	require.Equal(t, "4", got["OMP_NUM_THREADS"])
	require.Equal(t, "0", got["RANK"], "the job's place wins over the agent's own")
	require.Equal(t, "/x", got["PATH"])
	require.NotContains(t, got, "WEFT_TTY")
	require.Equal(t, "1", env(two, true)["WEFT_TTY"])
	require.NotContains(t, env(Spec{NprocPerNode: 1, Env: []string{}}, false), "OMP_NUM_THREADS", "one worker has all cores")
	require.Equal(t, "0", env(Spec{Env: []string{"TORCH_NCCL_ASYNC_ERROR_HANDLING=0"}}, false)["TORCH_NCCL_ASYNC_ERROR_HANDLING"])
}

func TestArgumentsGetTheLocalRank(t *testing.T) {
	s := Spec{Args: []string{"--out=${local_rank}/${local_rank}", "${rank}"}}
	require.Equal(t, []string{"--out=3/3", "${rank}"}, s.args(3))
}
