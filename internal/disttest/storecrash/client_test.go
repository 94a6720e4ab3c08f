package storecrash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/store"
)

const (
	patience = 2 * time.Minute // for an operation, over a crash
	keys     = 6
)

// client changes keys of its own, of which it knows what must be there, and one that all share.
type client struct {
	name string
	cl   *store.Client
	r    *rand.Rand

	values    [keys]string
	chain     int // what CompareSet has stored
	sum       int64
	log       string // what Append has written
	push, pop int    // how many numbers went into the queue and came out of it

	shared, doubtful int64 // additions to the shared number
	resolved         int   // changes of which it was not certain, and then found out
}

func (w *client) key(what string) string { return w.name + "/" + what }

// begin makes the keys that reading must not wait for.
func (w *client) begin(c context.Context) error {
	for k := range w.values {
		if err := w.set(c, k); err != nil {
			return err
		}
	}
	_, err := w.cl.CompareSet(c, w.key("chain"), nil, []byte("0"))
	return errors.Join(err, w.cl.Set(c, w.key("sum"), []byte("0")), w.cl.Append(c, w.key("log"), nil))
}

// step does one change and finds out what became of it.
func (w *client) step(c context.Context) (err error) {
	switch w.r.IntN(7) {
	case 0:
		err = w.set(c, w.r.IntN(keys))
	case 1:
		err = w.compareSet(c)
	case 2:
		err = w.add(c)
	case 3:
		err = w.append(c)
	case 4:
		err = w.pushOne(c)
	case 5:
		err = w.popOne(c)
	case 6:
		if _, err = w.cl.Add(c, "shared", 1); err == nil {
			w.shared++
		} else if errors.Is(err, store.ErrUncertain) {
			w.doubtful++
			err = nil
		}
	}
	return err
}

func (w *client) set(c context.Context, k int) error {
	value := strings.Repeat(strconv.Itoa(w.r.IntN(1000)), 1+w.r.IntN(6000))
	err := w.cl.Set(c, w.key(fmt.Sprint("value", k)), []byte(value))
	if err == nil { // it may be repeated, so it is never left open
		w.values[k] = value
	}
	return err
}

// resolve finds out, after an error that leaves it open, whether there is the state before a change
// or that after it.
func (w *client) resolve(err error, now func() (string, error), before, after string) (happened bool, _ error) {
	if !errors.Is(err, store.ErrUncertain) {
		return err == nil, err
	}
	w.resolved++
	got, err := now()
	if err == nil && got != before && got != after {
		err = fmt.Errorf("%s: there is %.80q, expected %.80q or %.80q", w.name, got, before, after)
	}
	return got == after, err
}

func (w *client) read(c context.Context, what string) func() (string, error) {
	return func() (string, error) {
		v, err := w.cl.Get(c, w.key(what))
		return string(v), err
	}
}

func (w *client) length(c context.Context) func() (string, error) {
	return func() (string, error) {
		n, err := w.cl.Len(c, w.key("queue"))
		return strconv.FormatInt(n, 10), err
	}
}

func (w *client) add(c context.Context) error {
	before, after := strconv.FormatInt(w.sum, 10), strconv.FormatInt(w.sum+3, 10)
	n, err := w.cl.Add(c, w.key("sum"), 3)
	if err == nil && n != w.sum+3 {
		return fmt.Errorf("%s: the sum is %d, expected %s", w.name, n, after)
	}
	happened, err := w.resolve(err, w.read(c, "sum"), before, after)
	if happened {
		w.sum += 3
	}
	return err
}

func (w *client) compareSet(c context.Context) error {
	before, after := strconv.Itoa(w.chain), strconv.Itoa(w.chain+1)
	got, err := w.cl.CompareSet(c, w.key("chain"), []byte(before), []byte(after))
	if err == nil && string(got) != after {
		return fmt.Errorf("%s: the chain is at %s, expected %s", w.name, got, before)
	}
	happened, err := w.resolve(err, w.read(c, "chain"), before, after)
	if happened {
		w.chain++
	}
	return err
}

func (w *client) append(c context.Context) error {
	more := fmt.Sprint(len(w.log), ",")
	happened, err := w.resolve(w.cl.Append(c, w.key("log"), []byte(more)), w.read(c, "log"), w.log, w.log+more)
	if happened {
		w.log += more
	}
	return err
}

func (w *client) pushOne(c context.Context) error {
	n := w.push - w.pop
	happened, err := w.resolve(w.cl.Push(c, w.key("queue"), fmt.Append(nil, w.push)), w.length(c), strconv.Itoa(n), strconv.Itoa(n+1))
	if happened {
		w.push++
	}
	return err
}

func (w *client) popOne(c context.Context) error {
	n := w.push - w.pop
	got, ok, err := w.cl.TryPop(c, w.key("queue"))
	if err == nil && (ok != (n > 0) || ok && string(got) != strconv.Itoa(w.pop)) {
		return fmt.Errorf("%s: popped %q (%t) from a queue of %d that begins with %d", w.name, got, ok, n, w.pop)
	}
	if n == 0 {
		if errors.Is(err, store.ErrUncertain) {
			err = nil
		}
		return err
	}
	happened, err := w.resolve(err, w.length(c), strconv.Itoa(n), strconv.Itoa(n-1))
	if happened {
		w.pop++
	}
	return err
}

// check compares all that is there with all that must be there.
func (w *client) check(c context.Context) error {
	names := []string{w.key("chain"), w.key("sum"), w.key("log")}
	want := []string{strconv.Itoa(w.chain), strconv.FormatInt(w.sum, 10), w.log}
	for k, v := range w.values {
		names, want = append(names, w.key(fmt.Sprint("value", k))), append(want, v)
	}
	got, err := w.cl.MultiGet(c, names...)
	if err != nil {
		return err
	}
	for i := range want {
		if string(got[i]) != want[i] {
			return fmt.Errorf("%s is %.80q, expected %.80q", names[i], got[i], want[i])
		}
	}
	for w.pop < w.push {
		if err := w.popOne(c); err != nil {
			return err
		}
	}
	n, err := w.cl.Len(c, w.key("queue"))
	if err == nil && n != 0 {
		err = fmt.Errorf("%s: %d are left in the queue", w.name, n)
	}
	return err
}
