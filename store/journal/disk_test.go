package journal

import (
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

var errCrash = errors.New("the machine has crashed")

// fake is a disk in memory that knows what it would lose. Each step costs one, and a write one per
// byte; when the budget is used up the process dies, or, with fail set, that step fails and no
// other.
type fake struct {
	mu      sync.Mutex
	names   map[string]*inode // as processes see them
	durable map[string]*inode // as they are after a crash of the machine
	order   []func()          // what makes durable of names, for what is not yet synced

	budget  int   // less than 0: none
	fail    error // nil: crash
	crashed bool
	syncs   int
	slow    time.Duration // of a sync
	syncing func()        // unless nil, called before a sync
}

type inode struct {
	data   []byte
	synced []byte
	owner  *handle // of the lock
}

func newFake() *fake {
	return &fake{names: map[string]*inode{}, durable: map[string]*inode{}, budget: -1}
}

func (d *fake) synced() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

func (d *fake) failNext(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget, d.fail = 0, err
}

// spend takes up to n of the budget and says how much there was.
func (d *fake) spend(n int) (int, error) {
	switch {
	case d.crashed:
		return 0, errCrash
	case d.budget < 0:
		return n, nil
	case d.budget >= n:
		d.budget -= n
		return n, nil
	}
	got := d.budget
	d.budget = -1
	if d.fail != nil {
		return got, d.fail
	}
	d.crashed = true
	return got, errCrash
}

func (d *fake) step(do func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.spend(1); err != nil {
		return err
	}
	return do()
}

func (d *fake) open(path string) (h file, err error) {
	err = d.step(func() error {
		if d.names[path] == nil {
			n := new(inode)
			d.names[path] = n
			d.order = append(d.order, func() { d.durable[path] = n })
		}
		h = &handle{d, d.names[path]}
		return nil
	})
	return h, err
}

func (d *fake) create(path string) (file, error) {
	f, err := d.open(path)
	if err == nil {
		err = f.Truncate(0)
	}
	return f, err
}

func (d *fake) rename(from, to string) error {
	return d.step(func() error {
		n := d.names[from]
		if n == nil {
			return os.ErrNotExist
		}
		delete(d.names, from)
		d.names[to] = n
		d.order = append(d.order, func() { delete(d.durable, from); d.durable[to] = n })
		return nil
	})
}

func (d *fake) remove(path string) error {
	return d.step(func() error {
		if d.names[path] == nil {
			return os.ErrNotExist
		}
		delete(d.names, path)
		d.order = append(d.order, func() { delete(d.durable, path) })
		return nil
	})
}

func (d *fake) syncDir(path string) error {
	return d.step(func() error {
		for _, do := range d.order {
			do()
		}
		d.order = nil
		return nil
	})
}

func (d *fake) same(path string, f file) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.names[path] == f.(*handle).inode, nil
}

// killed is the disk as the next process finds it.
func (d *fake) killed() *fake {
	out := newFake()
	for name, n := range d.names {
		out.names[name] = &inode{data: slices.Clone(n.data), synced: slices.Clone(n.data)}
	}
	out.durable = maps.Clone(out.names)
	return out
}

// lost is the disk after a crash of the machine: of what was not synced, so many changes of names
// have survived, and keep makes of the file's synced and unsynced bytes what is there now.
func (d *fake) lost(renames int, keep func(synced, data []byte) []byte) *fake {
	for _, do := range d.order[:renames] {
		do()
	}
	out := newFake()
	for name, n := range d.durable {
		data := keep(n.synced, n.data)
		out.names[name] = &inode{data: data, synced: slices.Clone(data)}
	}
	out.durable = maps.Clone(out.names)
	return out
}

type handle struct {
	d *fake
	*inode
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.crashed {
		return 0, errCrash
	}
	if at >= int64(len(h.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, at int64) (int, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	n, err := h.d.spend(len(b))
	if n == 0 {
		return 0, err
	}
	if end := int(at) + n; end > len(h.data) {
		h.data = append(h.data, make([]byte, end-len(h.data))...)
	}
	copy(h.data[at:], b[:n])
	return n, err
}

func (h *handle) Truncate(size int64) error {
	return h.d.step(func() error { h.data = slices.Clone(h.data[:size]); return nil })
}

func (h *handle) Sync() error {
	time.Sleep(h.d.slow)
	if h.d.syncing != nil {
		h.d.syncing()
	}
	return h.d.step(func() error { h.synced = slices.Clone(h.data); h.d.syncs++; return nil })
}

func (h *handle) size() (int64, error) {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	return int64(len(h.data)), nil
}

func (h *handle) lock() (free bool, err error) {
	err = h.d.step(func() error {
		if free = h.owner == nil; free {
			h.owner = h
		}
		return nil
	})
	return free, err
}

func (h *handle) Close() error {
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.owner == h {
		h.owner = nil
	}
	return nil
}
