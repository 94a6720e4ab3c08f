package job

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/transport"
)

// usualName is what a worker is called to which its program gave no name.
var usualName = regexp.MustCompile(`^worker[0-9]+$`)

// checkNames refuses a certificate with fewer names than workers are to start here: the last ones
// would be refused, when the others have started. It says nothing where no name is a usual one:
// then it may be the machine's, whose workers show no certificates, as those of PyTorch.
func checkNames(id *transport.Identity, cert string, spec agent.Spec) error {
	names := id.Names()
	if len(names) >= spec.NprocPerNode || !slices.ContainsFunc(names, usualName.MatchString) || isPython(spec.Program) {
		return nil
	}
	wanted := "the names of all that this machine starts"
	if spec.MaxNodes == 1 { // so the ranks are known
		var missing []string
		for rank := range spec.NprocPerNode {
			if name := fmt.Sprintf("worker%d", rank); !slices.Contains(names, name) {
				missing = append(missing, "URI:weft://"+spec.RunID+"/"+name)
			}
		}
		wanted = strings.Join(missing, ",") + ", too"
	}
	return fmt.Errorf("--nproc-per-node %d: each worker comes under a name of its own, and %s names %d of the job %s (%s): make it with %s, as its subjectAltName",
		spec.NprocPerNode, cert, len(names), spec.RunID, strings.Join(names, ", "), wanted)
}
