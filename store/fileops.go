package store

import (
	"bytes"
	"context"
	"os"
	"strconv"
)

// change begins an operation on one key and runs do with the file locked for writing.
func (f *File) change(c context.Context, name, key string, do func(h *os.File, old []byte, there bool) error,
	values ...[]byte) error {
	o, err := f.base.Begin(c, name, key)
	if err != nil {
		return err
	}
	defer o.End()
	for _, v := range values {
		if err := f.base.limits.checkValue(v); err != nil {
			return o.Fail(err)
		}
	}
	return o.Fail(f.locked(o, true, func(h *os.File) error {
		old, there := f.data[filePrefix+key]
		return do(h, old, there)
	}))
}

// Set implements Store.
func (f *File) Set(c context.Context, key string, value []byte) error {
	return f.change(c, "set", key, func(h *os.File, _ []byte, _ bool) error {
		return f.append(h, filePrefix+key, copied(value))
	}, value)
}

// Add implements Store.
func (f *File) Add(c context.Context, key string, delta int64) (sum int64, err error) {
	err = f.change(c, "add", key, func(h *os.File, old []byte, there bool) error {
		n := int64(0)
		if there {
			if n, err = parseDecimal(old); err != nil {
				return err
			}
		}
		sum = n + delta
		return f.append(h, filePrefix+key, strconv.AppendInt(nil, sum, 10))
	})
	return sum, err
}

// CompareSet implements Store.
func (f *File) CompareSet(c context.Context, key string, expected, desired []byte) (now []byte, err error) {
	err = f.change(c, "compare_set", key, func(h *os.File, old []byte, there bool) error {
		if bytes.Equal(old, expected) {
			now = copied(desired)
			return f.append(h, filePrefix+key, copied(desired))
		}
		if now = copied(old); !there {
			now = copied(expected)
		}
		return nil
	}, expected, desired)
	return now, err
}

// Delete implements Store.
func (f *File) Delete(c context.Context, key string) (was bool, err error) {
	err = f.change(c, "delete", key, func(h *os.File, _ []byte, there bool) error {
		if was = there; !there {
			return nil
		}
		return f.append(h, tombstone+filePrefix+key, nil)
	})
	return was && err == nil, err
}

// look begins an operation and runs see with the file locked for reading, again and again until it says done.
func (f *File) look(c context.Context, name string, keys []string, see func() (done bool)) error {
	o, err := f.base.Begin(c, name, keys...)
	if err != nil {
		return err
	}
	defer o.End()
	for {
		done := false
		err := f.locked(o, false, func(*os.File) error {
			done = see()
			return nil
		})
		if err != nil || done {
			return o.Fail(err)
		}
		if err := f.rest(o, f.cfg.Poll); err != nil {
			return o.Fail(err)
		}
	}
}

// Get implements Store.
func (f *File) Get(c context.Context, key string) (value []byte, err error) {
	err = f.look(c, "get", []string{key}, func() bool {
		v, there := f.data[filePrefix+key]
		if there {
			value = copied(v)
		}
		return there
	})
	return value, err
}

// Check implements Store.
func (f *File) Check(c context.Context, keys ...string) (all bool, err error) {
	err = f.look(c, "check", keys, func() bool {
		all = true
		for _, k := range keys {
			_, there := f.data[filePrefix+k]
			all = all && there
		}
		return true
	})
	return all, err
}

// Wait implements Store. A key that comes and goes between two looks at the file is not seen.
func (f *File) Wait(c context.Context, keys ...string) error {
	missing := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		missing[filePrefix+k] = struct{}{}
	}
	return f.look(c, "wait", keys, func() bool {
		for k := range missing {
			if _, there := f.data[k]; there {
				delete(missing, k)
			}
		}
		return len(missing) == 0
	})
}

// NumKeys implements Store.
func (f *File) NumKeys(c context.Context) (n int64, err error) {
	err = f.look(c, "num_keys", nil, func() bool {
		n = int64(len(f.data))
		return true
	})
	return n, err
}
