package resilient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/weft-project/weft/collective"
	"github.com/weft-project/weft/rpc"
)

// newcomers are those that come in now: not before the team has begun, and not before a step under
// way is made, unless there are too few to make it.
func (t *Team) newcomers(all []word) (names []string) {
	begun, underway := false, false
	for _, s := range all {
		if s.Done {
			return nil
		}
		names = append(names, s.Calls...)
		begun, underway = begun || s.Status.Era != "", underway || len(s.Status.Covered) > 0
	}
	if !begun || underway && len(all) >= t.cfg.Min {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if t.cfg.Max > 0 { // members may have heard different calls
		names = names[:min(len(names), max(t.cfg.Max-len(all), 0))]
	}
	return names
}

// awaitOthers waits for other members to come, and says so once.
func (t *Team) awaitOthers(c context.Context, short int) {
	if t.change.Short != short {
		t.change.Short = short
		t.cfg.Logger.Warn(fmt.Sprintf("%d of %d workers (Min) are there; waiting for others", t.cfg.Min-short, t.cfg.Min), "workers", workers(t.g))
		t.announce()
	}
	t.mail.idle(c, pause)
}

// invite takes newcomers in. Where that fails here the others may have done so, or may do so yet:
// the group ends on all members, and repair asks all of them which generation follows.
func (t *Team) invite(c context.Context, names []string) {
	before := workers(t.g)
	limited, cancel := context.WithTimeout(c, inviting)
	defer cancel()
	next, err := t.g.With(limited, names...)
	if err != nil {
		t.mail.discard(names) // who is there calls again
		if limited.Err() != nil && c.Err() == nil {
			missing := names
			if late := new(collective.LateError); errors.As(err, &late) {
				missing = late.Missing // members among them hear of it otherwise
			}
			for _, name := range missing {
				t.late[name] = time.Now()
			}
			t.cfg.Logger.Warn("newcomers that have called do not come", "workers", missing, "error", err)
		}
		t.g.Abort(fmt.Errorf("the newcomers %v do not come: %w", names, err))
		return
	}
	t.adopt(next, before)
}

// inviting bounds how long newcomers may take that have called, and then do not come. They are not
// invited again for some time, so that they hold up the others for a tenth of it at most.
const (
	inviting = 2 * time.Second
	sparing  = 10 * inviting
)

// calls are newcomers that may come in.
func (t *Team) calls(c context.Context) []string {
	var dead []string
	names := slices.DeleteFunc(t.waiting(), func(name string) bool {
		_, err := t.g.Worker().Find(c, name)
		if err != nil {
			dead = append(dead, name)
		}
		return err != nil
	})
	t.mail.discard(dead)
	return names
}

// waiting are the newcomers that have called, and for whom there is room.
func (t *Team) waiting() []string {
	members := workers(t.g)
	names := slices.DeleteFunc(t.mail.calls(), func(name string) bool {
		late := len(members) >= t.cfg.Min && time.Since(t.late[name]) < sparing
		return late || slices.Contains(members, name)
	})
	if t.cfg.Max > 0 {
		names = names[:min(len(names), max(t.cfg.Max-len(members), 0))]
	}
	return names
}

// enlist calls the members of a team until they take this worker in.
func enlist(c context.Context, w *rpc.Worker, team string) (*collective.Group, error) {
	raw, err := cbor.Marshal(letter{Kind: letterCalls})
	if err != nil {
		return nil, err
	}
	calling, stop := context.WithCancel(c)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		again := time.NewTicker(calls)
		defer again.Stop()
		var mu sync.Mutex
		under := map[string]bool{} // to whom a call is on its way: who is gone does not hold up others
		for calling.Err() == nil {
			for _, o := range w.Workers() {
				mu.Lock()
				waits := under[o.Name] || o.Name == w.Name()
				under[o.Name] = true
				mu.Unlock()
				if waits {
					continue
				}
				all.Go(func() {
					one, cancel := context.WithTimeout(calling, asking)
					defer cancel()
					_ = rpc.Post(one, w, o.Name, "resilient/"+team, raw) // who is no member does not hear it
					mu.Lock()
					defer mu.Unlock()
					delete(under, o.Name)
				})
			}
			select {
			case <-again.C:
			case <-calling.Done():
			}
		}
	})
	return collective.Enlist(c, w, team)
}

// calls is how often a newcomer calls.
const calls = 100 * time.Millisecond
