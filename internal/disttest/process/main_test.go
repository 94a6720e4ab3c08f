package process

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/disttest/hostile"
	"github.com/weft-project/weft/internal/disttest/proctest"
	"github.com/weft-project/weft/internal/disttest/workload"
	"github.com/weft-project/weft/rpc"
	"github.com/weft-project/weft/store"
	"github.com/weft-project/weft/transport"
)

// patience bounds what a test waits for another process.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if os.Getenv("RANK") != "" {
		runVolunteer()
	}
	var here inhabitant
	var group partner
	apprentice := trainee{partner: &group}
	var pupil student
	proctest.Main(m, map[string]proctest.Command{
		"join":     proctest.Do(here.join),
		"leave":    proctest.Do(here.leave),
		"mix":      proctest.Do(here.mix),
		"rest":     proctest.Do(here.rest),
		"close":    proctest.Do(here.close),
		"spoil":    proctest.Do(spoil),
		"attack":   proctest.Do(func(c context.Context, a hostile.Attack) (hostile.Report, error) { return a.Run(c) }),
		"open":     proctest.Do(group.open),
		"enlist":   proctest.Do(group.enlist),
		"sum":      proctest.Do(group.sum),
		"narrow":   proctest.Do(group.narrow),
		"gather":   proctest.Do(group.gather),
		"trade":    proctest.Do(group.trade),
		"after":    proctest.Do(group.after),
		"without":  proctest.Do(group.without),
		"with":     proctest.Do(group.with),
		"survive":  proctest.Do(group.survive),
		"end":      proctest.Do(group.end),
		"heed":     proctest.Do(group.heed),
		"apart":    proctest.Do(apprentice.apart),
		"regroup":  proctest.Do(apprentice.regroup),
		"cut":      proctest.Do(apprentice.cut),
		"enrol":    proctest.Do(pupil.enrol),
		"until":    proctest.Do(pupil.until),
		"tell":     proctest.Do(pupil.tell),
		"pause":    proctest.Do(pupil.pause),
		"stop":     proctest.Do(pupil.stop),
		"graduate": proctest.Do(pupil.graduate),
		"look": proctest.Do(func(context.Context, struct{}) (resources, error) {
			runtime.GC()
			return resourcesNow()
		}),
	})
}

// inhabitant is the worker of another process.
type inhabitant struct {
	m    *workload.Member
	stop atomic.Pointer[context.CancelFunc] // ends the mix
}

func (h *inhabitant) join(c context.Context, p workload.Place) (_ struct{}, err error) {
	h.m, err = p.Join(c, hold)
	return struct{}{}, err
}

func (h *inhabitant) leave(c context.Context, _ struct{}) (struct{}, error) {
	return struct{}{}, errors.Join(h.m.Leave(c), h.m.Close())
}

func (h *inhabitant) close(context.Context, struct{}) (struct{}, error) {
	return struct{}{}, h.m.Close()
}

// town is a store and processes with one worker each, beside worker 0 in the test's own.
type town struct {
	place workload.Place
	procs []*proctest.Proc // by rank; nil at 0
	*workload.Member
}

func settle(t testing.TB, place workload.Place, more ...rpc.Function) *town {
	t.Helper()
	size := place.Size
	server, err := store.Serve(store.ServerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	place.Store, place.World, place.Token = server.Addr(), "0/", transport.NewToken()
	to := &town{place: place, procs: make([]*proctest.Proc, size)}
	c, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	joined := make(chan error, size)
	for i := 1; i < size; i++ {
		to.procs[i] = proctest.Start(t, nil)
		go func() { joined <- to.procs[i].Ask(c, "join", to.at(i), nil) }()
	}
	to.Member, err = to.at(0).Join(c, append([]rpc.Function{hold}, more...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, to.Close()) })
	for i := 1; i < size; i++ {
		require.NoError(t, <-joined)
	}
	return to
}

func (to *town) at(rank int) workload.Place {
	p := to.place
	p.Rank = rank
	if rank != 1 { // a given address is worker1's
		p.Listen = ""
	}
	return p
}
