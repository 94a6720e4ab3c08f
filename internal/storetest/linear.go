package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/store"
)

// plain is the store as a map and lists under one lock.
type plain struct {
	data  map[string]string
	queue []string
}

func (p plain) clone() plain { return plain{maps.Clone(p.data), slices.Clone(p.queue)} }

func (p plain) String() string { return fmt.Sprint(p.data, p.queue) } // maps are printed in order

// call is an operation, what a plain store answers to it and what was answered, and when it began
// and ended.
type call struct {
	name       string
	on         func(c context.Context, s store.Store) (string, error)
	model      func(p *plain) string
	got        string
	start, end int64
}

func (a call) String() string { return fmt.Sprintf("%d–%d %s: %s", a.start, a.end, a.name, a.got) }

// linear says whether there is an order of the calls in which a plain store gives all their
// answers, and in which no call comes before one that had ended when it began.
func linear(calls []call, p plain) bool {
	tried := map[string]bool{}
	var from func(done uint64, p plain) bool
	from = func(done uint64, p plain) bool {
		if done == 1<<len(calls)-1 {
			return true
		}
		at := strconv.FormatUint(done, 36) + p.String()
		if tried[at] {
			return false
		}
		tried[at] = true
		first := int64(1 << 62)
		for i, a := range calls {
			if done>>i&1 == 0 {
				first = min(first, a.end)
			}
		}
		for i, a := range calls {
			if done>>i&1 == 0 && a.start < first {
				if then := p.clone(); a.model(&then) == a.got && from(done|1<<i, then) {
					return true
				}
			}
		}
		return false
	}
	return from(0, p)
}

// randomCall is an operation on the keys of a round, whose name is their beginning. It never waits.
func randomCall(r *rand.Rand, round string, unsupported map[Part]bool) call {
	k := round + []string{"a", "b"}[r.IntN(2)]
	a, b, q := round+"a", round+"b", round+"q"
	v := []string{"1", "22", "", "x"}[r.IntN(4)]
	if unsupported[Errors] {
		v = "1"
	}
	for {
		switch r.IntN(12) {
		case 0, 1:
			return setCall(k, v)
		case 2, 3:
			return call{name: "add " + k, on: func(c context.Context, s store.Store) (string, error) {
				n, err := s.Add(c, k, 1)
				if errors.Is(err, store.ErrNotANumber) {
					return "no number", nil
				}
				return strconv.FormatInt(n, 10), err
			}, model: func(p *plain) string { return p.addOne(k) }}
		case 4, 5:
			want := []string{"", "1", "never"}[r.IntN(3)]
			return call{name: fmt.Sprintf("compareSet %s %q %q", k, want, v), on: func(c context.Context, s store.Store) (string, error) {
				got, err := s.CompareSet(c, k, []byte(want), []byte(v))
				return string(got), err
			}, model: func(p *plain) string { return p.compareSet(k, want, v) }}
		case 6:
			return call{name: "delete " + k, on: func(c context.Context, s store.Store) (string, error) {
				was, err := s.Delete(c, k)
				return strconv.FormatBool(was), err
			}, model: func(p *plain) string {
				_, there := p.data[k]
				delete(p.data, k)
				return strconv.FormatBool(there)
			}}
		case 7:
			return call{name: "check " + a + " " + b, on: func(c context.Context, s store.Store) (string, error) {
				ok, err := s.Check(c, a, b)
				return strconv.FormatBool(ok), err
			}, model: func(p *plain) string {
				_, first := p.data[a]
				_, second := p.data[b]
				return strconv.FormatBool(first && second)
			}}
		case 8:
			if !unsupported[Append] {
				return call{name: "append " + k + " " + v, on: func(c context.Context, s store.Store) (string, error) {
					return "", s.Append(c, k, []byte(v))
				}, model: func(p *plain) string { p.data[k] += v; return "" }}
			}
		case 9:
			if !unsupported[Multi] {
				return call{name: "multiSet a, b " + v, on: func(c context.Context, s store.Store) (string, error) {
					return "", s.MultiSet(c, store.Pair{Key: a, Value: []byte(v)}, store.Pair{Key: b, Value: []byte(v)})
				}, model: func(p *plain) string { p.data[a], p.data[b] = v, v; return "" }}
			}
		case 10:
			if !unsupported[List] {
				return call{name: "list", on: func(c context.Context, s store.Store) (string, error) {
					keys, err := s.ListKeys(c)
					keys = slices.DeleteFunc(keys, func(k string) bool { return !strings.HasPrefix(k, round) })
					return fmt.Sprint(keys), err
				}, model: func(p *plain) string { return fmt.Sprint(slices.Sorted(maps.Keys(p.data))) }}
			}
		case 11:
			if !unsupported[Queues] {
				return queueCall(q, v, r.IntN(3))
			}
		}
	}
}

func setCall(k, v string) call {
	return call{name: "set " + k + " " + v, on: func(c context.Context, s store.Store) (string, error) {
		return "", s.Set(c, k, []byte(v))
	}, model: func(p *plain) string { p.data[k] = v; return "" }}
}

func queueCall(q, v string, which int) call {
	switch which {
	case 0:
		return call{name: "push " + v, on: func(c context.Context, s store.Store) (string, error) {
			return "", s.Push(c, q, []byte(v))
		}, model: func(p *plain) string { p.queue = append(p.queue, v); return "" }}
	case 1:
		return call{name: "len", on: func(c context.Context, s store.Store) (string, error) {
			n, err := s.Len(c, q)
			return strconv.FormatInt(n, 10), err
		}, model: func(p *plain) string { return strconv.Itoa(len(p.queue)) }}
	}
	return call{name: "tryPop", on: func(c context.Context, s store.Store) (string, error) {
		v, ok, err := s.TryPop(c, q)
		return fmt.Sprint(ok, string(v)), err
	}, model: func(p *plain) string {
		if len(p.queue) == 0 {
			return fmt.Sprint(false, "")
		}
		v := p.queue[0]
		p.queue = p.queue[1:]
		return fmt.Sprint(true, v)
	}}
}

func (p *plain) addOne(k string) string {
	n, err := strconv.Atoi(p.data[k])
	if _, there := p.data[k]; there && err != nil {
		if _, err := fmt.Sscanf(p.data[k], "%d", &n); err != nil {
			return "no number"
		}
	}
	p.data[k] = strconv.Itoa(n + 1)
	return p.data[k]
}

func (p *plain) compareSet(k, want, v string) string {
	switch now, there := p.data[k]; {
	case now == want:
		p.data[k] = v
		return v
	case there:
		return now
	}
	return want
}

// waits is what a plain store answers to a call that cannot be over yet. No store gives that
// answer.
const waits = "\x00"

// waitingCall is an operation that waits for what others write.
func waitingCall(r *rand.Rand, round string, unsupported map[Part]bool) call {
	k, a, b := round+[]string{"a", "b"}[r.IntN(2)], round+"a", round+"b"
	for {
		switch r.IntN(4) {
		case 0:
			return call{name: "get " + k, on: func(c context.Context, s store.Store) (string, error) {
				v, err := s.Get(c, k)
				return string(v), err
			}, model: func(p *plain) string { return p.get(k) }}
		case 1:
			return call{name: "wait " + k, on: func(c context.Context, s store.Store) (string, error) {
				return "", s.Wait(c, k)
			}, model: func(p *plain) string {
				if p.get(k) == waits {
					return waits
				}
				return ""
			}}
		case 2:
			if !unsupported[Multi] {
				return call{name: "multiGet", on: func(c context.Context, s store.Store) (string, error) {
					v, err := s.MultiGet(c, a, b)
					return string(bytes.Join(v, []byte(" "))), err
				}, model: func(p *plain) string {
					if p.get(a) == waits || p.get(b) == waits {
						return waits
					}
					return p.get(a) + " " + p.get(b)
				}}
			}
		case 3:
			if !unsupported[Queues] {
				return call{name: "pop", on: func(c context.Context, s store.Store) (string, error) {
					v, err := s.Pop(c, round+"q")
					return string(v), err
				}, model: func(p *plain) string {
					if len(p.queue) == 0 {
						return waits
					}
					v := p.queue[0]
					p.queue = p.queue[1:]
					return v
				}}
			}
		}
	}
}

func (p *plain) get(k string) string {
	if v, there := p.data[k]; there {
		return v
	}
	return waits
}

// history notes the calls of several clients. It is safe for concurrent use.
type history struct {
	clock atomic.Int64
	mu    sync.Mutex
	calls []call
}

func (h *history) record(c context.Context, s store.Store, a call) error {
	var err error
	a.start = h.clock.Add(1)
	if a.got, err = a.on(c, s); err != nil {
		return fmt.Errorf("%s: %w", a.name, err)
	}
	a.end = h.clock.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, a)
	return nil
}

func (h *history) require(t *testing.T) {
	t.Helper()
	require.True(t, linear(h.calls, plain{data: map[string]string{}}), "no order of these calls explains their answers: %v", h.calls)
}

// asUnderOneLock makes random calls of all clients at once: their answers are those of a map under
// one lock.
func asUnderOneLock(t *testing.T, clients []store.Store, unsupported map[Part]bool) {
	c := within(t)
	for round := range 12 {
		var h history
		inParallel(t, clients, func(i int, s store.Store) error {
			r := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			for range 9 {
				if err := h.record(c, s, randomCall(r, fmt.Sprintf("round %d ", round), unsupported)); err != nil {
					return err
				}
			}
			return nil
		})
		h.require(t)
	}
}

// waitingUnderOneLock does so with calls that wait, of half of the clients. In the end there is
// something for each.
func waitingUnderOneLock(t *testing.T, clients []store.Store, unsupported map[Part]bool) {
	c := within(t)
	const each = 5
	for round := range 12 {
		var h history
		name, readers := fmt.Sprintf("waiting %d ", round), len(clients)/2
		var writing sync.WaitGroup
		writing.Add(len(clients) - readers)
		inParallel(t, clients, func(i int, s store.Store) error {
			r := rand.New(rand.NewPCG(uint64(round), uint64(i)))
			next := randomCall
			if i < readers {
				next = waitingCall
			}
			var err error
			for n := 0; n < each && err == nil; n++ {
				err = h.record(c, s, next(r, name, unsupported))
			}
			if i < readers {
				return err
			}
			if writing.Done(); i > readers || err != nil {
				return err
			}
			writing.Wait()
			for _, k := range []string{"a", "b"} {
				err = errors.Join(err, h.record(c, s, setCall(name+k, "end")))
			}
			for range readers * each {
				if !unsupported[Queues] {
					err = errors.Join(err, h.record(c, s, queueCall(name+"q", "end", 0)))
				}
			}
			return err
		})
		h.require(t)
	}
}
