package gpumem

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/internal/soak"
)

// values is all there are.
func values(all ...*origin) func(func(*origin)) {
	return func(see func(*origin)) {
		for _, o := range all {
			see(o)
		}
	}
}

func TestWhoAsksForWhatCameOfAFaultIsAlwaysTold(t *testing.T) {
	var x tellings
	var bad, other, later origin
	x.asked(&bad, 1, 5, 3)
	x.asked(&other, 2, 5, 4)
	wrong := errors.New("wrong")
	f, nobodys := x.clear(wrong, 1<<3, &clock{9, 9, 9}, values(&bad, &other))
	require.False(t, nobodys)
	require.False(t, f.told)
	require.NoError(t, other.faultFor(false), "it is not its flag that is up")
	for range 3 {
		require.Same(t, wrong, bad.faultFor(false))
	}
	require.True(t, f.told)
	x.depend(&later, &bad)
	x.asked(&later, 1, 10, 5)
	f, nobodys = x.clear(errors.New("once more"), 1<<5, &clock{9, 10, 9}, values(&later))
	require.False(t, nobodys)
	require.True(t, f.told, "who asks for it hears of the first")
	require.Same(t, wrong, later.faultFor(true), "and for what came of that")
	x.asked(&other, 1, 11, 3)
	x.clean.raise(1, 11)
	x.clear(errors.New("another's"), 1<<3, &clock{9, 12}, values(&other))
	require.NoError(t, other.faultFor(false), "what is known to have met no fault is not spoiled by a later one")
	var fresh origin
	x.depend(&fresh, &other)
	require.Zero(t, fresh.flags)
}

func TestStepsThatWereLeftOutAreToldToOneWhoStepsAndOneWhoReads(t *testing.T) {
	var x tellings
	var w, v, theirs, loss origin
	wrong := errors.New("wrong")
	fault := func() {
		x.asked(&loss, 0, 1+x.clean[0], 7)
		x.noteStep(&w, &w, 1<<7, 0, 2+x.clean[0])
		x.noteStep(&v, &v, 1<<7|1<<9, 0, 3+x.clean[0])
		x.noteStep(&theirs, &theirs, 1<<8, 1, 1)
		_, nobodys := x.clear(wrong, 1<<7|1<<9, &clock{3 + x.clean[0], 1}, values(&w, &v, &theirs, &loss))
		require.False(t, nobodys)
		require.NoError(t, theirs.faultFor(true), "it heeds no flag that is up")
	}
	fault()
	require.ErrorIs(t, w.faultFor(false), wrong)
	require.NoError(t, v.faultFor(false), "who reads has been told")
	require.ErrorIs(t, v.faultFor(true), wrong, "who steps has not")
	require.NoError(t, w.faultFor(true))
	fault()
	require.ErrorIs(t, w.faultFor(true), wrong)
	require.NoError(t, v.faultFor(false))
	loss = origin{}
	fault()
	require.ErrorIs(t, loss.faultFor(false), wrong)
	require.NoError(t, w.faultFor(true), "who was told of the fault need not be told of what was left out for it")
	require.ErrorIs(t, loss.faultFor(false), wrong)
}

func TestAStepHeedsAndTellsWhatIsNotKnownOfItAlone(t *testing.T) {
	var x tellings
	var w, old origin
	x.asked(&old, 2, 1, 3)
	x.noteStep(&w, &old, 1<<4, 0, 1)
	require.Equal(t, old.asks, w.asks, "it came of what was before, wherever that lay")
	require.Equal(t, old.flags, w.flags)
	for n := range uint64(10) { // a loss is read one step late
		x.clean.raise(0, n)
		x.noteStep(&w, &w, 1<<(10+n), 0, n+2)
		require.LessOrEqual(t, len(w.steps), 2)
	}
	x.clear(errors.New("foreign"), 1<<12, &clock{11}, values(&w))
	require.NoError(t, w.faultFor(true))
	for n := range uint64(10) {
		x.noteStep(&w, &w, 1<<n, 0, n+12)
	}
	require.Len(t, w.steps, mostSteps)
	x.clear(errors.New("found"), 1, &clock{30}, values(&w))
	require.Error(t, w.faultFor(true), "the first may have been left out")
}

func TestACopyOfAValueIsLikeItWhateverElseItsRunRead(t *testing.T) {
	var x tellings
	var w, ids, copied origin
	x.asked(&ids, 0, 1, 3)
	x.depend(&copied, &w)
	x.depend(&copied, &ids)
	copied.like(&w)
	x.clear(errors.New("found"), 1<<3, &clock{1}, values(&w, &ids, &copied))
	require.Error(t, ids.faultFor(false))
	require.NoError(t, copied.faultFor(false))
}

func TestAFaultOfWhichNothingIsLeftIsTheFindersAndIsNotLostWhereSomebodyAsksOfAll(t *testing.T) {
	var x tellings
	var o origin
	require.Nil(t, x.untold())
	f, nobodys := x.clear(errors.New("wrong"), 1, &clock{}, values(&o))
	require.True(t, nobodys)
	require.Same(t, f, x.untold())
	f.told = true
	require.Nil(t, x.untold())
}

func TestWhoLookedBeforeAFaultWasClearedHearsThatOneAndNotALaterOne(t *testing.T) {
	var x tellings
	var all []*found
	for range keptFaults + 3 {
		f, _ := x.clear(errors.New("found"), 1, &clock{}, values())
		all = append(all, f)
	}
	for epoch := range all {
		require.Same(t, all[max(epoch, 3)], x.after(epoch), "or the first that is remembered")
	}
	require.Same(t, all[3], x.untold())
}

// thing is a value, and what is true of it: whether a fault is in it.
type thing struct {
	origin
	wrong bool
	owner *trainer
	uses  []*task // that wrote it last, and have read it since
}

// task is a run; it is done some time after it was asked for.
type task struct {
	source int
	n      uint64
	after  []*task
	do     func()
	done   bool
}

// trainer is who has values, and a parameter; it is told of faults.
type trainer struct {
	data  [3]*thing
	param *thing
	met   bool // a fault
	left  bool // a step was left out, and it has not been told
	look  *peek
}

// peek is a look under way.
type peek struct {
	at     *thing
	epoch  int
	copied bool
	set    bool
	done   clock
}

// ground is random trainers over one record.
type ground struct {
	tellings
	r      *rand.Rand
	queues [3][]*task
	ended  clock
	record uint64 // the flags that are up
	number int    // of runs that may meet a fault: each has a flag of its own
	all    []*thing
	frozen *thing
	bad    string // what went wrong, the first time
	forget func(*ground)
}

func (g *ground) thing(owner *trainer) *thing {
	v := &thing{owner: owner}
	g.all = append(g.all, v)
	return v
}

func (g *ground) say(what string) {
	if g.bad == "" {
		g.bad = what
	}
}

// ask puts a task into a queue, after those that it depends on.
func (g *ground) ask(do func(), to *thing, reads ...*thing) *task {
	s := g.r.IntN(len(g.queues))
	k := &task{source: s, n: uint64(len(g.queues[s]) + 1), do: do, after: slices.Clone(to.uses)}
	for _, v := range reads {
		if len(v.uses) > 0 {
			k.after = append(k.after, v.uses[0])
		}
		v.uses = append(v.uses, k)
	}
	to.uses = []*task{k}
	g.queues[s] = append(g.queues[s], k)
	return k
}

// finish does a task, after those before it.
func (g *ground) finish(k *task) {
	if k.done {
		return
	}
	for _, b := range k.after {
		g.finish(b)
	}
	if k.n > 1 {
		g.finish(g.queues[k.source][k.n-2])
	}
	k.done = true
	k.do()
	g.ended.raise(k.source, k.n)
}

func (g *ground) finishAll(ks []*task) {
	for _, k := range ks {
		g.finish(k)
	}
}

func (g *ground) finishSome() {
	for _, q := range g.queues {
		if len(q) > 0 && g.r.IntN(2) == 0 {
			g.finish(q[g.r.IntN(len(q))])
		}
	}
}

// compute writes a value from others.
func (g *ground) compute(p *trainer, to *thing, from ...*thing) {
	var came origin
	for _, v := range from {
		g.depend(&came, &v.origin)
	}
	names := g.number < 64 && g.r.IntN(3) == 0
	meets := names && g.r.IntN(4) == 0
	flag := g.number
	k := g.ask(func() {
		wrong := meets
		for _, v := range from {
			wrong = wrong || v.wrong
		}
		to.wrong = wrong
		if meets {
			g.record |= 1 << flag
			p.met = true
		}
	}, to, from...)
	if names {
		g.asked(&came, k.source, k.n, uint8(flag))
		g.number++
	}
	to.origin = came
}

func (g *ground) step(p *trainer, grad *thing) {
	w := p.param
	if w.faultFor(true) != nil || grad.faultFor(true) != nil {
		g.told(p)
		return
	}
	var came origin
	g.depend(&came, &w.origin)
	g.depend(&came, &grad.origin)
	var heed uint64
	k := g.ask(func() {
		switch {
		case g.record&heed != 0:
			p.left = true
			if !p.met {
				g.say("the step of who met no fault was left out")
			}
		case grad.wrong:
			g.say("a parameter was stepped by what came of a fault")
		}
	}, w, grad, w)
	heed = came.flags
	g.tellings.noteStep(&w.origin, &w.origin, heed, k.source, k.n)
}

func (g *ground) told(p *trainer) {
	p.left = false
	if !p.met {
		g.say("who met no fault was told")
	}
}

// glance begins, goes on with, or ends a look.
func (g *ground) glance(p *trainer) {
	l := p.look
	switch {
	case l == nil:
		v := append(p.data[:], p.param)[g.r.IntN(4)]
		if v.faultFor(false) != nil {
			g.told(p)
			return
		}
		p.look = &peek{at: v, epoch: g.epoch}
	case !l.copied:
		g.finishAll(l.at.uses)
		g.finishSome()
		l.copied, l.set, l.done = true, g.record != 0, g.ended
	default:
		p.look = nil
		g.end(p, l)
	}
}

func (g *ground) end(p *trainer, l *peek) {
	nobodys := false
	if l.epoch == g.epoch && !l.set {
		g.clean.advanceTo(&l.done)
	} else if l.epoch == g.epoch {
		for _, q := range g.queues {
			g.finishAll(q)
		}
		_, nobodys = g.clear(errors.New("found"), g.record, &g.ended, func(see func(*origin)) {
			for _, v := range g.all {
				see(&v.origin)
			}
		})
		g.record = 0
		g.forget(g)
	}
	if l.at.faultFor(false) != nil {
		g.told(p)
		return
	}
	if nobodys {
		p.left = false
		return
	}
	if l.at.wrong {
		g.say("a fault was not told")
	}
	if l.at == p.param && p.left {
		g.say("a step was left out, and nobody was told")
	}
}

// playFaults says what went wrong; forget is a mistake when the record is cleared.
func playFaults(seed uint64, forget func(*ground)) string {
	g := &ground{r: rand.New(rand.NewPCG(seed, 12)), forget: forget}
	g.frozen = g.thing(nil)
	trainers := make([]*trainer, 1+g.r.IntN(3))
	for k := range trainers {
		p := &trainer{}
		for n := range p.data {
			p.data[n] = g.thing(p)
		}
		p.param = g.thing(p)
		trainers[k] = p
	}
	for range 150 {
		p := trainers[g.r.IntN(len(trainers))]
		a, b := p.data[g.r.IntN(3)], p.data[g.r.IntN(3)]
		switch n := g.r.IntN(12); {
		case n < 4 || p.look != nil && g.r.IntN(2) == 0: // it waits for its look
			g.glance(p)
		case p.look != nil:
			g.finishSome()
		case n == 4: // it is replaced by what the host has
			g.finishAll(a.uses)
			a.origin, a.wrong, a.uses = origin{}, false, nil
		case n == 5:
			g.step(p, a)
		case n < 8:
			g.compute(p, a, b)
		default:
			g.compute(p, a, p.param, g.frozen, b)
		}
	}
	return g.bad
}

func TestNoFaultIsLostWhoeverFindsIt(t *testing.T) {
	for seed := range uint64(soak.Cases(1000)) {
		require.Empty(t, playFaults(seed, func(*ground) {}), "seed %d", seed)
	}
}

func TestTheOracleOfFaultsSeesEachMistake(t *testing.T) {
	for want, forget := range map[string]func(*ground){
		"a fault was not told":                            func(g *ground) { g.each(func(o *origin) { o.spoiled = nil }) },
		"a step was left out, and nobody was told":        func(g *ground) { g.each(func(o *origin) { o.left = nil }) },
		"who met no fault was told":                       func(g *ground) { g.each(func(o *origin) { o.spoiled = g.found[g.epoch%keptFaults] }) },
		"the step of who met no fault was left out":       func(g *ground) { g.each(func(o *origin) { o.flags = ^uint64(0); o.asks = clock{1 << 60} }) },
		"a parameter was stepped by what came of a fault": func(g *ground) { g.each(func(o *origin) { o.spoiled = nil }) },
	} {
		seen := 0
		for seed := range uint64(1000) {
			if playFaults(seed, forget) == want {
				seen++
			}
		}
		require.Greater(t, seen, 5, want)
	}
}

func (g *ground) each(do func(*origin)) {
	for _, v := range g.all {
		do(&v.origin)
	}
}
