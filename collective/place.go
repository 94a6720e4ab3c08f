package collective

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/weft-project/weft/collective/internal/desk"
	"github.com/weft-project/weft/collective/internal/plan"
	"github.com/weft-project/weft/internal/site"
)

// Scopes of the group's own. A user's does not begin so.
const (
	scopeOfMarks = desk.Own + "mark " // what needs a number and no message
	scopeOfTalks = desk.Own + "back " // backwards
)

// checkScope says what is wrong with a user's scope.
func checkScope(scope string) error {
	if len(scope) > maxScope {
		return fmt.Errorf("%w: a scope of %d bytes; expected %d at most", ErrArguments, len(scope), maxScope)
	}
	if strings.HasPrefix(scope, desk.Own) {
		return fmt.Errorf("%w: a scope that begins with a zero byte", ErrArguments)
	}
	return nil
}

// place is what a context says of the operation that is called under it.
type place struct {
	what  string
	line  string
	key   *desk.Key // the operation's; nil: the next of its scope
	began func(k desk.Key)
	by    plan.Algorithm // 0: as the group chooses
}

type placeKey struct{}

func placeIn(c context.Context) place {
	at, _ := c.Value(placeKey{}).(place)
	return at
}

// describe says in a call what it is for.
func (at place) describe(call *desk.Call) {
	call.For = at.what
	if at.line != "" {
		call.Line = at.line
	}
}

// number gives an operation its number. The caller holds the group's lock.
func (at place) number(g *Group, scope string) desk.Key {
	var k desk.Key
	if at.key != nil {
		k = *at.key
	} else {
		k = g.desk.Next(scope)
	}
	if at.began != nil {
		at.began(k)
	}
	return k
}

// Describe derives a context whose operations carry a description: members with different ones get
// a [MismatchError]. key gets the name of each, by which all members call it. It is for packages
// above this one, such as tensors.
func Describe(c context.Context, what string, key func(key string)) context.Context {
	at := placeIn(c)
	at.what = what
	at.began = func(k desk.Key) { key(k.Name()) }
	return context.WithValue(c, placeKey{}, at)
}

// Mark is the name of something that each member does in its turn, as operations are numbered, and
// which needs no message.
func (g *Group) Mark(c context.Context) string {
	scope, _ := c.Value(scopeKey{}).(string)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.desk.Skip(scopeOfMarks + scope).Name()
}

// Abandon fails the next operation under the context on all members: this one cannot call it.
func (g *Group) Abandon(c context.Context, cause error) {
	scope, _ := c.Value(scopeKey{}).(string)
	g.mu.Lock()
	k := placeIn(c).number(g, scope)
	g.mu.Unlock()
	g.giveUp(k, cause)
}

// refuse says what is wrong with a call that it fails on all members.
func (g *Group) refuse(c context.Context, kind plan.Kind, wrong error) error {
	if err := there(g); err != nil {
		return fmt.Errorf("collective: %v: %w", kind, err)
	}
	if g.whole(c) == nil { // else nobody would hear of it
		g.Abandon(c, wrong)
	}
	return fmt.Errorf("collective: %v in group %q: %w", kind, g.name, wrong)
}

// giveUp fails an operation that this member has not begun, and will not.
func (g *Group) giveUp(k desk.Key, cause error) {
	g.fail(k, cause)
	g.mu.Lock()
	_ = g.desk.Begin(g.rank, k, desk.Call{}) // it has failed
	rest := g.desk.End(k)
	g.forgetWaits(k)
	g.mu.Unlock()
	for _, a := range rest {
		a.release()
	}
}

// forgetWaits forgets who waits in an operation that has ended, and in parts of it that never
// began. The caller holds the group's lock.
func (g *Group) forgetWaits(k desk.Key) {
	for at := range g.waits {
		if at == k || k.Part == 0 && at.Whole() == k {
			delete(g.waits, at)
		}
	}
}

// wake lets look again who waits in an operation or a part of it. The caller holds the group's
// lock.
func (g *Group) wake(k desk.Key) {
	for at, w := range g.waits {
		if at == k || at.Whole() == k {
			w.notify()
		}
	}
}

// known is what a group remembers, as it is asked for again and again.
type known struct {
	mu    sync.Mutex
	lines map[uintptr]string // of the user's code; "" where a frame is not the user's
	plans map[planned]plan.Plan
}

type planned struct {
	kind      plan.Kind
	algorithm plan.Algorithm
	root      int
}

// memory is how many lines, and plans, a group remembers.
const memory = 1000

// line is the user's that calls.
func (k *known) line() string {
	var stack [32]uintptr
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pc := range stack[:runtime.Callers(0, stack[:])] {
		line, seen := k.lines[pc]
		if !seen {
			if file, n := site.Outside([]uintptr{pc}); file != "" {
				line = fmt.Sprintf("%s:%d", filepath.Base(file), n)
			}
			remember(&k.lines, pc, line)
		}
		if line != "" {
			return line
		}
	}
	return ""
}

// plan is what a member does in an operation. It is shared by all operations of the kind.
func (k *known) plan(call desk.Call, size, rank int, layout []int) plan.Plan {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := planned{call.Kind, call.Algorithm, call.Root}
	p, seen := k.plans[key]
	if !seen {
		p = plan.New(call.Kind, call.Algorithm, size, rank, call.Root, layout...)
		remember(&k.plans, key, p)
	}
	return p
}

func remember[K comparable, V any](all *map[K]V, k K, v V) {
	if *all == nil || len(*all) >= memory {
		*all = map[K]V{}
	}
	(*all)[k] = v
}
