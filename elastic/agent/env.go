package agent

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/elastic"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/internal/secret"
)

// workerName is what messages call the worker of a rank.
func workerName(rank int) string { return "worker" + strconv.Itoa(rank) }

// environ is the environment of the worker with the given local rank, in the place of its node and
// with the workers' store of that round. The spec's RunID and Token are those of the running job.
func (s Spec) environ(localRank int, p rdzv.Placement, master, errorFile string, terminal bool) []string {
	base := parseEnv(s.Env)
	nproc := strconv.Itoa(s.NprocPerNode)
	host, port, _ := net.SplitHostPort(master)
	delete(base, "WEFT_TTY") // it speaks of the terminal of an agent above this one
	delete(base, elastic.ErrorFileVariable)
	if errorFile != "" {
		base[elastic.ErrorFileVariable] = errorFile
	}
	if terminal {
		base["WEFT_TTY"] = "1"
	}
	if _, set := base["OMP_NUM_THREADS"]; !set && s.NprocPerNode > 1 {
		base["OMP_NUM_THREADS"] = "1" // workers share the cores; a thread pool in each would fight over them
	}
	groups := p.Restarts // of all workers: where torch's processes meet is named for it, so it is the same for all that run at a time
	if s.Policy == rdzv.ReplaceWorker {
		groups = 0
	}
	maps.Copy(base, map[string]string{
		"LOCAL_RANK":                      strconv.Itoa(localRank),
		"RANK":                            strconv.Itoa(p.First + localRank),
		"GROUP_RANK":                      strconv.Itoa(p.Rank),
		"ROLE_RANK":                       strconv.Itoa(p.RoleFirst + localRank),
		"ROLE_NAME":                       s.Role,
		"LOCAL_WORLD_SIZE":                nproc,
		"WORLD_SIZE":                      strconv.Itoa(p.World),
		"GROUP_WORLD_SIZE":                strconv.Itoa(p.Nodes),
		"ROLE_WORLD_SIZE":                 strconv.Itoa(p.RoleWorld),
		"MASTER_ADDR":                     host,
		"MASTER_PORT":                     port,
		"TORCHELASTIC_RESTART_COUNT":      strconv.Itoa(groups),
		"TORCHELASTIC_MAX_RESTARTS":       strconv.Itoa(p.MaxRestarts),
		"TORCHELASTIC_RUN_ID":             s.RunID,
		"TORCHELASTIC_USE_AGENT_STORE":    "True",
		"TORCH_NCCL_ASYNC_ERROR_HANDLING": valueOr(base, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
		elastic.TokenVariable:             s.Token,
		elastic.RestartsVariable:          strconv.Itoa(p.Restarts),
	})
	delete(base, elastic.TokenFileVariable) // what lies in the file is in s.Token
	if s.Token == "" {
		delete(base, elastic.TokenVariable)
	}
	env := make([]string, 0, len(base))
	for _, k := range slices.Sorted(maps.Keys(base)) {
		env = append(env, k+"="+base[k])
	}
	return env
}

// args are the worker's arguments, with torchrun's one macro filled in.
func (s Spec) args(localRank int) []string {
	args := make([]string, len(s.Args))
	for i, a := range s.Args {
		args[i] = strings.ReplaceAll(a, "${local_rank}", strconv.Itoa(localRank))
	}
	return args
}

// prefix is what stands in front of a worker's lines.
func (s Spec) prefix(localRank, rank int) string {
	return strings.NewReplacer("${rank}", strconv.Itoa(rank), "${local_rank}", strconv.Itoa(localRank), "${role_name}", s.Role).Replace(s.Prefix)
}

// MakeSecrets fills in the run id and the token where they are not given, and makes a token of a
// secret that is none, as transport.StrengthenToken does: Run's workers get the result. There is no
// token that several nodes would make alike. Run does this by itself, and changes nothing where it
// was done.
func (s Spec) MakeSecrets() (Spec, error) {
	s, err := s.given()
	if err != nil {
		return s, err
	}
	if s.RunID == "" && s.Token == "" && s.alone() {
		s.RunID = randomHex(8)
	}
	s.RunID = cmp.Or(s.RunID, NoRunID)
	switch {
	case s.TokenMade:
	case s.Token != "":
		if s.Token, err = secret.Strengthen(s.Token, s.RunID); err == nil {
			s.proof, err = Proof(s.Token, s.RunID)
		}
	case s.alone(): // the workers of several nodes would refuse each other
		s.Token, s.TokenMade = secret.New(), true
	}
	return s, err
}

// given fills in the token of the workers' environment, where the spec has none.
func (s Spec) given() (_ Spec, err error) {
	if s.Token == "" {
		s.Token, err = secret.FromEnv(s.inherited)
	}
	return s, err
}

// inherited is what the workers would have of a variable.
func (s Spec) inherited(name string) string {
	env := s.Env
	if env == nil {
		env = os.Environ()
	}
	return parseEnv(env)[name]
}

// NoRunID is the name of a job that was given none, as with torchrun: all nodes must have the same,
// and rpc.NoJob is what workers take.
const NoRunID = "none"

// Proof is what the nodes of a job show each other of their token (rdzv.Config.Proof). It is
// derived from the job's key, as all else is: each try of a secret against it costs an argon2id.
func Proof(token, job string) (string, error) {
	digest, err := secret.Derive(token, job, "rendezvous", 4)
	return hex.EncodeToString(digest), err
}

// parseEnv makes a map of "KEY=value" entries; as for a process, the last of a key counts.
func parseEnv(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k != "" {
			m[k] = v
		}
	}
	return m
}

func valueOr(m map[string]string, key, fallback string) string {
	if v, ok := m[key]; ok {
		return v
	}
	return fallback
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // it never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b)
}
