package job

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weft-project/weft/cmd/weft/internal/cli"
)

// FromSlurm sets what the command line leaves open from the environment of Slurm's srun: the job's
// machines, which one this is, and that they meet at the first.
func (f *Flags) FromSlurm(cmd *cobra.Command, lookup func(string) (string, bool)) error {
	if !f.slurm {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("--from-slurm: "+format, args...)) }
	value := func(names ...string) string {
		for _, name := range names {
			if v, _ := lookup(name); v != "" {
				return v
			}
		}
		bad("$%s is not set; start weft run by srun, once per machine", names[0])
		return ""
	}
	if local, _ := lookup("SLURM_LOCALID"); local != "" && local != "0" {
		bad("srun has started more than one task on this machine; weft run starts the workers itself: say srun --ntasks-per-node=1")
	}
	id, nodes, node := value("SLURM_JOB_ID", "SLURM_JOBID"), value("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), value("SLURM_NODEID")
	host, err := firstHost(value("SLURM_JOB_NODELIST", "SLURM_NODELIST"))
	if err != nil && len(errs) == 0 {
		bad("$SLURM_JOB_NODELIST: %w", err)
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	flags := cmd.Flags()
	set := map[string]string{"nnodes": nodes, "rdzv-id": "slurm-" + id, "node-rank": node}
	sources := map[string]string{"nnodes": "SLURM_NNODES", "rdzv-id": "SLURM_JOB_ID", "node-rank": "SLURM_NODEID", "rdzv-endpoint": "SLURM_JOB_NODELIST"}
	if nodes != "1" && !f.standalone && !f.inEtcd() && f.backend != "static" {
		set["rdzv-endpoint"] = net.JoinHostPort(host, rdzvPort)
	}
	for name, v := range set {
		if flags.Changed(name) || name == "rdzv-id" && flags.Changed("run-id") {
			continue
		}
		if err := flags.Set(name, v); err != nil {
			bad("$%s: %w", sources[name], cli.Plainly(err))
		}
		f.from(name, sources[name])
	}
	f.NodeRankGiven = true
	return errors.Join(errs...)
}

// firstHost is the first of a list of hosts in Slurm's notation, such as "gpu[003-007,12],login":
// gpu003.
func firstHost(list string) (string, error) {
	var host strings.Builder
	for i := 0; i < len(list) && list[i] != ','; i++ {
		if list[i] != '[' {
			host.WriteByte(list[i])
			continue
		}
		within, _, closed := strings.Cut(list[i+1:], "]")
		first, _, _ := strings.Cut(within, ",")
		first, _, _ = strings.Cut(first, "-")
		if !closed || first == "" || strings.Trim(first, "0123456789") != "" {
			return "", fmt.Errorf("expected hosts such as node[01-04,7], got %q", list)
		}
		host.WriteString(first)
		i += len(within) + 1
	}
	if name := host.String(); name == "" || strings.ContainsAny(name, "[]:/ \t\n") {
		return "", fmt.Errorf("expected hosts such as node[01-04,7], got %q", list)
	}
	return host.String(), nil
}
