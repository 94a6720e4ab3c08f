package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/cmd/weft/internal/etcdlogin"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/secret"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/transport"
)

// Spec turns the flags into the agent's terms; what the agent itself checks is left to it.
func (f *Flags) Spec(args []string) (agent.Spec, error) {
	program, rest, errProgram := f.program(args)
	if f.policy == "" {
		f.policy = usualPolicy(program)
	}
	nproc, errProc := parseNproc(f.nproc, os.DirFS("/"))
	logs, errLogs := f.logs()
	least, most, errNodes := parseNnodes(f.nnodes)
	var errRange error
	if least != most && f.meetsBy(most) == "static" {
		errRange = fmt.Errorf("--nnodes %s: machines that meet at --master-addr, each with its --node-rank, are a fixed number of them: give --nnodes N; "+
			"for a range give --rdzv-endpoint HOST:PORT, with --rdzv-backend store", f.nnodes)
	}
	meet, errMeet := f.meeting(most)
	var errGrace error
	if f.shutdown < 0 {
		errGrace = fmt.Errorf("--shutdown-timeout: expected more than 0, got %v", f.shutdown)
	} else if f.shutdown > 0 {
		f.grace = time.Duration(f.shutdown * float64(time.Second))
	}
	var errRestarts error
	if f.maxRestarts < 0 {
		errRestarts = fmt.Errorf("--max-restarts: expected 0 or more, got %d", f.maxRestarts)
	}
	if f.grace <= 0 {
		errGrace = fmt.Errorf("--grace: expected more than 0, got %v", f.grace)
	}
	token, errToken := f.FileToken()
	env, errEnv := f.environ()
	spec := agent.Spec{
		Program: program, Args: rest,
		NprocPerNode: nproc, MinNodes: least, MaxNodes: most, WantRank: meet.wantRank, Endpoint: meet.endpoint, Meet: meet.etcd.opener(), Stays: meet.etcd.stays(), LocalAddr: f.localAddr,
		MaxRestarts: f.maxRestarts, Policy: meet.policy,
		JoinTimeout: meet.joinTimeout, LastCall: meet.lastCall, Silence: meet.silence,
		RunID: f.runID, Role: f.role, Token: token,
		MasterAddr: f.masterAddr, MasterPort: f.masterPort,
		Logs: logs, Prefix: os.Getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"), NoPrefix: f.noPrefix, Grace: f.grace, Env: env,
	}
	var errStore error
	if errToken == nil {
		spec, errStore = f.secure(spec)
	}
	return spec, errors.Join(errProgram, errProc, errLogs, errNodes, errMeet, errRange, errGrace, errRestarts, errToken, errEnv, errStore)
}

// secure gives the job its id and its token, and its stores TLS.
func (f *Flags) secure(spec agent.Spec) (agent.Spec, error) {
	files, err := f.Certificates()
	if err != nil {
		return spec, err
	}
	spec.Env = f.shows(files, spec.Env)
	if spec.RunID == "" && files.CA != "" {
		spec.RunID = agent.NoRunID // certificates cannot name a random one
	}
	if spec, err = spec.MakeSecrets(); err != nil {
		return spec, err
	}
	if spec.Token == "" && spec.MaxNodes == 1 && files.CA == "" { // nobody else is to come
		spec.Token, spec.TokenMade = transport.NewToken(), true
	}
	var id *transport.Identity
	spec.Store, id, err = f.store(spec.Token, spec.RunID)
	if err == nil && files.CA != "" {
		err = checkNames(id, files.Cert, spec)
	}
	secure := rpc.StoreTLSVariable + "=0"
	if spec.Store.TLS != nil {
		secure = rpc.StoreTLSVariable + "=1"
	}
	spec.Env = append(spec.Env, secure)
	return spec, err
}

// shows is the workers' environment with what they show that they are members by: the certificates,
// or the secret that is given, and not both.
func (f *Flags) shows(files transport.IdentityFiles, env []string) []string {
	if env == nil {
		env = os.Environ()
	}
	names := []string{rpc.CAVariable, rpc.CertVariable, rpc.KeyVariable}
	if files.CA != "" {
		names = append(names, secret.Variable, secret.FileVariable)
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return slices.Contains(names, name)
	})
	if files.CA != "" {
		env = append(env, rpc.CAVariable+"="+files.CA, rpc.CertVariable+"="+files.Cert,
			rpc.KeyVariable+"="+files.Key)
	}
	return env
}

// environ is what the workers inherit: this process's environment, and what the flags say to the
// workers.
func (f *Flags) environ() ([]string, error) {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, etcdlogin.PasswordVariable+"=") })
	if f.lanes == "" {
		f.lanes = os.Getenv(rpc.LanesVariable)
		f.from("lanes", rpc.LanesVariable)
	}
	if f.lanes != "" {
		if _, err := rpc.ParseLanes(f.lanes); err != nil {
			return nil, fmt.Errorf("--lanes: %w", err)
		}
		env = append(env, rpc.LanesVariable+"="+f.lanes)
	}
	if f.trace == "" {
		f.trace = os.Getenv(rpc.TraceVariable)
		f.from("trace", rpc.TraceVariable)
	}
	if f.trace != "" {
		dir, err := traceFolder(f.trace)
		if err != nil {
			return nil, fmt.Errorf("--trace: %w", err)
		}
		env = append(env, rpc.TraceVariable+"="+dir)
	}
	return env, nil
}

// traceFolder makes a folder for traces. One that holds a trace is refused: it would be taken for
// one of this job.
func traceFolder(name string) (string, error) {
	dir, err := private.Folder(name)
	if err != nil {
		return "", err
	}
	defer dir.Close()
	files, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		if filepath.Ext(f.Name()) == ".json" {
			return "", fmt.Errorf("%s holds %s of another job; remove it, or name another folder", dir.Name(), f.Name())
		}
	}
	return dir.Name(), nil
}

func parseNnodes(s string) (least, most int, err error) {
	low, high, ranged := strings.Cut(s, ":")
	if !ranged {
		high = low
	}
	least, errLeast := strconv.Atoi(low)
	most, errMost := strconv.Atoi(high)
	if errLeast != nil || errMost != nil || least < 1 || most < least {
		return 0, 0, fmt.Errorf(`--nnodes: expected N or MIN:MAX with 1 ≤ MIN ≤ MAX; got %q`, s)
	}
	return least, most, nil
}
