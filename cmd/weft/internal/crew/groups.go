package crew

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/weft-project/weft/rpc"
)

// PrintGroups says what the groups of the workers wait in, where, and for whom. It says nothing of
// groups in which nothing is under way.
func PrintGroups(w io.Writer, workers []rpc.Observed) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	heading := "\nGROUP\tWORKER\tWAITS IN\tAT\tFOR\tFOR WHOM\n"
	for _, o := range workers {
		if o.Status == nil {
			continue
		}
		for _, g := range o.Status.Groups {
			name := fmt.Sprintf("%s (rank %d of %d)", g.Name, g.Rank, g.Size)
			if g.Ended != "" {
				fmt.Fprintf(tw, "%s%s\t%s\tit has ended: %s\n", heading, name, o.Name, g.Ended)
				heading = ""
			}
			for _, p := range g.Pending {
				fmt.Fprintf(tw, "%s%s\t%s\t%s %s\t%s\t%v\t%s\n", heading, name, o.Name, p.Call, p.Key, p.Line, duration(p.Seconds), awaited(p.Waits))
				heading = ""
			}
			if g.Omitted > 0 {
				fmt.Fprintf(tw, "%s\t%s\tand %d more\n", name, o.Name, g.Omitted)
			}
		}
	}
	_ = tw.Flush()
}

// awaited names workers, with where they have called the same.
func awaited(all []rpc.GroupAwaited) string {
	var names []string
	for _, a := range all {
		if a.Line != "" {
			a.Worker += " (at " + a.Line + ")"
		}
		names = append(names, a.Worker)
	}
	return strings.Join(names, ", ")
}

func duration(seconds float64) time.Duration {
	return time.Duration(min(seconds, 1e9) * float64(time.Second)).Round(10 * time.Millisecond)
}
