package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/weft-project/weft/internal/safetensors"
)

// Checkpoint is a whole set of tensors on disk. It is safe for concurrent use; Close it.
type Checkpoint struct {
	Step  int64
	Notes map[string]string

	dir     string
	shards  []shard
	tensors map[string][]source

	mu    sync.Mutex
	files map[int]*opened // by shard
}

type source struct {
	piece
	shard   int
	foreign bool // it has no checksum
}

// opened is a file of tensors.
type opened struct {
	f    *os.File
	t    *safetensors.File
	size int64
	head uint32 // checksum of what is before the tensors' bytes
}

// read reads the header of a file of tensors, which may be given with why it could not be opened.
func read(f *os.File, err error) (*opened, error) {
	if err != nil {
		return nil, err
	}
	o := &opened{f: f}
	info, err := f.Stat()
	if err == nil {
		o.size = info.Size()
		o.t, err = safetensors.Open(f, o.size)
	}
	if err == nil {
		head := make([]byte, o.t.Head())
		_, err = f.ReadAt(head, 0)
		o.head = sum(head)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return o, nil
}

// Latest is the newest whole checkpoint; ErrNone where there is none, and ErrCorrupt with the name
// of its manifest where that is damaged: then an older one, if there is one, can be had by its
// step.
func (d *Dir) Latest() (*Checkpoint, error) { return d.find(func(folder) bool { return true }) }

// At is the newest whole checkpoint of a step.
func (d *Dir) At(step int64) (*Checkpoint, error) {
	return d.find(func(f folder) bool { return f.step == step })
}

// Steps are those of which there is a whole checkpoint, the newest first.
func (d *Dir) Steps() ([]int64, error) {
	all, err := folders(d.path)
	var out []int64
	for _, f := range all {
		if f.whole && !slices.Contains(out, f.step) {
			out = append(out, f.step)
		}
	}
	return out, err
}

// OpenFile is one file of safetensors of anybody's, as Python's library writes them. Nothing
// vouches for the tensors' bytes, and its step is 0.
func OpenFile(path string) (*Checkpoint, error) {
	o, err := read(os.Open(path))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	file := shard{File: filepath.Base(path), Bytes: o.size, Head: o.head}
	k := &Checkpoint{Notes: o.t.Notes, dir: filepath.Dir(path), shards: []shard{file}, tensors: map[string][]source{}, files: map[int]*opened{0: o}}
	for _, name := range o.t.Names() {
		info, _ := o.t.Info(name)
		k.tensors[name] = []source{{piece: piece{Key: name, Name: name, DType: info.DType, Shape: info.Shape, Rows: rowsOf(info.Shape)}, foreign: true}}
	}
	return k, nil
}

func (d *Dir) find(fits func(folder) bool) (*Checkpoint, error) {
	all, err := folders(d.path)
	if err != nil {
		return nil, err
	}
	for _, f := range all {
		if f.whole && fits(f) {
			return open(filepath.Join(d.path, f.name))
		}
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, d.path)
}

// open reads a manifest and looks whether its files have the size that they should have.
func open(dir string) (*Checkpoint, error) {
	path := filepath.Join(dir, manifestName)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	file, err := root.Open(manifestName)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxManifest))
	if err != nil {
		return nil, err
	}
	m, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k := &Checkpoint{Step: m.Step, Notes: m.Notes, dir: dir, shards: m.Shards, tensors: map[string][]source{}, files: map[int]*opened{}}
	for i, s := range m.Shards {
		info, err := root.Stat(s.File)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, filepath.Join(dir, s.File), err)
		}
		if info.Size() != s.Bytes {
			return nil, fmt.Errorf("%w: %s has %d bytes, and had %d when it was written", ErrCorrupt, filepath.Join(dir, s.File), info.Size(), s.Bytes)
		}
		for _, p := range s.Pieces {
			k.tensors[p.Name] = append(k.tensors[p.Name], source{piece: p, shard: i})
		}
	}
	return k, nil
}

// Names are the tensors' names, sorted.
func (k *Checkpoint) Names() []string { return slices.Sorted(maps.Keys(k.tensors)) }

// Shape is the shape of the whole tensor, and its dtype.
func (k *Checkpoint) Shape(name string) (shape []int, dtype string, err error) {
	pieces, there := k.tensors[name]
	if !there {
		return nil, "", fmt.Errorf("%w: %s has no tensor %q", ErrInvalid, k.dir, name)
	}
	return slices.Clone(pieces[0].Shape), pieces[0].DType, nil
}

// Read is a whole tensor.
func (k *Checkpoint) Read(name string) (Piece, error) {
	shape, _, err := k.Shape(name)
	if err != nil {
		return Piece{}, err
	}
	return k.ReadRows(name, 0, rowsOf(shape))
}

// ReadRows is some rows of a tensor, whoever had them when they were saved.
func (k *Checkpoint) ReadRows(name string, begin, rows int) (Piece, error) {
	shape, dtype, err := k.Shape(name)
	if err != nil {
		return Piece{}, err
	}
	all := rowsOf(shape)
	if begin < 0 || rows < 0 || begin > all-rows {
		return Piece{}, fmt.Errorf("%w: tensor %q has %d rows, not %d to %d", ErrInvalid, name, all, begin, begin+rows)
	}
	out := Piece{Name: name, DType: dtype, Shape: shape, Begin: begin}
	at := func(row int) int64 { // also of pieces, which begin and end with a byte
		n, e := piece{DType: dtype, Shape: shape}.before(row)
		err = cmp.Or(err, e)
		return n
	}
	first, end := at(begin), at(begin+rows)
	if err != nil {
		return Piece{}, fmt.Errorf("%w: rows %d to %d of tensor %q: %w", ErrInvalid, begin, begin+rows, name, err)
	}
	out.Data = make([]byte, end-first)
	for _, s := range k.tensors[name] {
		from, to := max(begin, s.Begin), min(begin+rows, s.Begin+s.Rows)
		if from >= to {
			continue
		}
		b, err := k.read(s)
		if err != nil {
			return Piece{}, err
		}
		copy(out.Data[at(from)-first:at(to)-first], b[at(from)-at(s.Begin):])
	}
	return out, nil
}

// read reads and checks one piece.
func (k *Checkpoint) read(s source) ([]byte, error) {
	path := filepath.Join(k.dir, k.shards[s.shard].File)
	corrupt := func(err error) error { return fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err) }
	o, err := k.open(s.shard)
	if err != nil {
		return nil, corrupt(err)
	}
	n, err := s.info().Bytes()
	if err != nil {
		return nil, corrupt(err)
	}
	if info, there := o.t.Info(s.Key); !there || info.DType != s.DType || !slices.Equal(info.Shape, s.info().Shape) {
		return nil, corrupt(fmt.Errorf("tensor %q is not there as the manifest says", s.Key))
	}
	b := make([]byte, n)
	if err := o.t.ReadAt(s.Key, b, 0); err != nil {
		return nil, corrupt(err)
	}
	if !s.foreign && sum(b) != s.Sum {
		return nil, corrupt(fmt.Errorf("the bytes of tensor %q are not those that were written", s.Key))
	}
	return b, nil
}

func (k *Checkpoint) open(i int) (*opened, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.files[i]; o != nil {
		return o, nil
	}
	o, err := read(os.OpenInRoot(k.dir, k.shards[i].File))
	if err != nil {
		return nil, err
	}
	if s := k.shards[i]; o.size != s.Bytes || o.head != s.Head {
		return nil, errors.Join(errors.New("its header or its size is not that which was written"), o.f.Close())
	}
	k.files[i] = o
	return o, nil
}

// Close closes the files.
func (k *Checkpoint) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, o := range k.files {
		o.f.Close()
		delete(k.files, i)
	}
	return nil
}
