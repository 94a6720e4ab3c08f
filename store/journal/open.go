package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

const newSuffix = ".new" // of the file that a compaction writes beside the journal

// Open opens the journal in path, which is made if it does not exist; its directory must. It first
// gives replay every record in it, in their order; a record is valid until replay returns. An error
// of replay ends Open.
func Open(path string, cfg Config, replay func(record []byte) error) (*Journal, error) {
	j := &Journal{cfg: cfg.withDefaults(), mark: mark{seq: noMark}, failed: make(chan struct{})}
	j.free.L = &j.mu
	var err error
	if j.path, err = realPath(path); err != nil {
		return nil, fmt.Errorf("journal %s: %w", path, err)
	}
	if err := j.open(replay); err != nil {
		if j.file != nil {
			j.file.Close()
		}
		if corrupt := new(CorruptError); errors.As(err, &corrupt) {
			return nil, err
		}
		return nil, fmt.Errorf("journal %s: %w", j.path, err)
	}
	return j, nil
}

// realPath makes path independent of the working directory, and follows a link, which a compaction
// would put a file in place of.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		return path, nil
	}
	return real, err
}

func (j *Journal) open(replay func([]byte) error) error {
	if err := j.openLocked(); err != nil {
		return err
	}
	if err := j.cfg.disk.remove(j.path + newSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // it is left over from a compaction
	}
	size, err := j.file.size()
	if err != nil {
		return err
	}
	begun, err := j.readHead(size)
	if err != nil {
		return err
	}
	if begun {
		err = j.replay(size, replay)
	} else {
		err = j.writeHead()
	}
	if err != nil {
		return err
	}
	// What was replayed must not be lost later, though it may never have been synced; nor the
	// file's name.
	return errors.Join(j.file.Sync(), j.cfg.disk.syncDir(filepath.Dir(j.path)))
}

// openLocked opens the file that has the name when it is locked: whoever had it may just have put a
// shorter one in its place.
func (j *Journal) openLocked() error {
	for {
		f, err := j.cfg.disk.open(j.path)
		if err != nil {
			return err
		}
		free, err := f.lock()
		if err == nil && !free {
			err = ErrLocked
		}
		var same bool
		if err == nil {
			same, err = j.cfg.disk.same(j.path, f)
		}
		if same {
			j.file = f
			return nil
		}
		f.Close()
		if err != nil {
			return err
		}
	}
}

// readHead says whether there is a whole head. There is none in a new file, and in one whose maker
// died: nothing was committed to it. Anything else is not ours to overwrite.
func (j *Journal) readHead(size int64) (bool, error) {
	head := make([]byte, min(size, int64(headSize)))
	if _, err := j.file.ReadAt(head, 0); err != nil && len(head) > 0 {
		return false, err
	}
	salt, ok := parseHead(head)
	if ok {
		j.salt = salt
		return true, nil
	}
	n := min(len(head), len(magic))
	if size <= int64(headSize) && (string(head[:n]) == magic[:n] || strings.Trim(string(head), "\x00") == "") {
		return false, nil
	}
	return false, &CorruptError{j.path, 0, "the file does not begin as a journal does"}
}

// writeHead writes the head of a new file.
func (j *Journal) writeHead() error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	j.salt, j.end = rand.Uint64(), int64(headSize)
	_, err := j.file.WriteAt(appendHead(nil, j.salt), 0)
	return err
}

// replay gives out what is whole, and cuts off what a crash left behind it.
func (j *Journal) replay(size int64, replay func([]byte) error) error {
	end, err := scan(j.file, j.salt, int64(headSize), size, func(at int64, payload []byte) error {
		for rest := payload; len(rest) > 0; {
			record, more, ok := cutRecord(rest)
			if !ok {
				return &CorruptError{j.path, at, "a frame is whole and its records do not fit"}
			}
			if err := replay(record); err != nil {
				return fmt.Errorf("record %d, in the frame at byte %d: %w", j.appended+1, at, err)
			}
			j.appended++
			rest = more
		}
		return nil
	})
	if err != nil {
		return err
	}
	j.end, j.safe = end, j.appended
	if end == size {
		return nil
	}
	next, damaged, err := find(j.file, j.salt, end+1, size)
	if err != nil {
		return err
	}
	if damaged {
		return &CorruptError{j.path, end, fmt.Sprintf("what stands there was not written so, and records follow at byte %d; "+
			"all before it is whole, and is what remains if the file is cut to %d bytes", next, end)}
	}
	j.cfg.Logger.Warn("journal: what a crash left unfinished is cut off", "path", j.path, "offset", end, "bytes", size-end)
	return j.file.Truncate(end)
}
