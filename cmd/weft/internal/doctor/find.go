package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weft-project/weft/cmd/weft/internal/crew"
	"github.com/weft-project/weft/cmd/weft/internal/reach"
	"github.com/weft-project/weft/elastic/agent"
	"github.com/weft-project/weft/elastic/rdzv"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// The workers of a job have joined in its store, or with elastic.Join in the part of it that is
// their epoch's. Where its machines meet lies the address of the store that the workers have in
// this round.

// jobSeen is what the workers of a job say, and where they have joined.
type jobSeen struct {
	workers []rpc.Observed
	addr    string // of their store
	epoch   int    // of elastic.Join, -1 where they have not used it
}

// observeJob asks the workers of the job whose store is at addr, or whose machines meet there.
func (f *jobFlags) observeJob(c context.Context, addr string, id *transport.Identity) (o jobSeen, err error) {
	n, err := crew.Network(id)
	if err != nil {
		return o, err
	}
	st, err := crew.Dial(c, addr, id, f.timeout)
	if err != nil {
		return o, f.noStore(addr, err)
	}
	defer func() { _ = st.Close() }()
	jobs, err := agent.Jobs(c, st)
	if err != nil && !errors.Is(err, store.ErrUnsupported) {
		return o, err
	}
	if len(jobs) > 0 {
		if addr, err = f.workersStore(c, st, addr, jobs); err != nil {
			return o, err
		}
		_ = st.Close()
		if st, err = crew.Dial(c, addr, id, f.timeout); err != nil {
			return o, f.noStore(addr, err)
		}
	}
	o.addr = addr
	o.workers, o.epoch, err = crew.Ask(c, st, n, f.timeout)
	if errors.Is(err, rpc.ErrNoJob) {
		err = nobodyJoined(addr, len(jobs) > 0)
	}
	return o, err
}

// nobodyJoined is that no worker has joined in the store at addr, which may have been found where
// the machines of the job meet.
func nobodyJoined(addr string, found bool) error {
	if found {
		return fmt.Errorf("the store of this round's workers, at %s, was found, but no worker has joined there: "+
			"they have not come to rpc.Join yet, have left, or their program does not use Weft's rpc", addr)
	}
	return fmt.Errorf("there is a store at %s, but no worker has joined there: they have not come to rpc.Join yet, or have left. "+
		"The workers of several machines have another store in each round: give where the machines meet, their --rdzv-endpoint", addr)
}

// workersStore is the address of the store that the workers of a job have now; its machines meet in
// st, with those of all these jobs.
func (f *jobFlags) workersStore(c context.Context, st store.Store, addr string, jobs []string) (string, error) {
	job := f.Job
	slices.Sort(jobs)
	switch {
	case job == "" && len(jobs) > 1:
		return "", fmt.Errorf("several jobs meet at %s: name one of %s with --rdzv-id", addr, strings.Join(jobs, ", "))
	case job == "":
		job = jobs[0]
	case !slices.Contains(jobs, job):
		return "", fmt.Errorf("no job %s meets at %s; there are %s (--rdzv-id)", job, addr, strings.Join(jobs, ", "))
	}
	v, err := rdzv.Look(c, agent.RendezvousOf(job, st))
	if err != nil {
		return "", fmt.Errorf("the job %s at %s: %w", job, addr, err)
	}
	if v.Phase != rdzv.Complete {
		return "", fmt.Errorf("the job %s at %s has no workers now: its round %d is %v; more tells: %s", job, addr, v.Round, v.Phase,
			f.Line("weft", "status", "--rdzv-endpoint", addr, "--rdzv-id", job))
	}
	found, err := agent.WorkersStore(c, st, job, v.Round)
	if err == nil && found == "" {
		err = fmt.Errorf("the job %s at %s has no store for the workers of round %d yet: try again", job, addr, v.Round)
	}
	return found, err
}

// noStore explains why a store is not reached.
func (f *jobFlags) noStore(addr string, err error) error {
	if advice := reach.Refusal(err); advice != "" {
		return fmt.Errorf("%w\n%s", err, advice)
	}
	why := reach.Why(err, addr)
	if why == "" {
		why = "it does not answer as a store of this job"
	}
	return fmt.Errorf("no store at %s: %s. Is the job running, and is this its store (weft run and weft status tell it; MASTER_ADDR and MASTER_PORT of its workers), "+
		"or where its machines meet, and is --rdzv-id its id? (%w)", addr, why, err)
}
