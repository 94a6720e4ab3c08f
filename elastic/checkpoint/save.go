package checkpoint

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/safetensors"
	"github.com/weft-project/weft/store"
)

// Config says how a Dir keeps checkpoints. Its zero value works.
type Config struct {
	Keep int // how many whole checkpoints stay when a new one is whole; 0 means 2
}

// Dir is a folder of checkpoints.
type Dir struct {
	path string
	cfg  Config
	sync func(*os.File) error

	mu    sync.Mutex
	turns map[int]chan struct{} // by rank; capacity 1: one save of a worker at a time
}

// turn is what a worker holds while it saves.
func (d *Dir) turn(rank int) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.turns[rank] == nil {
		d.turns[rank] = make(chan struct{}, 1)
	}
	return d.turns[rank]
}

// Open uses a folder for checkpoints, and makes what is missing of its path. It refuses one to
// which other users of this host may write.
func Open(path string, cfg Config) (*Dir, error) {
	if cfg.Keep < 0 || path == "" {
		return nil, fmt.Errorf("%w: expected a folder, and Keep not less than 0; got %q and %d", ErrInvalid, path, cfg.Keep)
	}
	if cfg.Keep == 0 {
		cfg.Keep = 2
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	folder, err := private.Folder(path)
	if err != nil {
		return nil, err
	}
	d := &Dir{path: path, cfg: cfg, turns: map[int]chan struct{}{}, sync: (*os.File).Sync}
	return d, folder.Close()
}

// Piece is a tensor, or some of its rows.
type Piece struct {
	Name  string
	DType string // as in safetensors: F32, F64, I64, …
	Shape []int  // of the whole tensor
	Begin int    // the first row that is here
	Data  []byte // rows from Begin on, little-endian
}

// Part is a worker's part in a checkpoint.
type Part struct {
	Step        int64
	Rank, World int               // 0 and 0 mean a job of one worker
	Store       store.Store       // where the workers meet; a job of one needs none
	Pieces      []Piece           // what this worker has; several may have the same rows
	Notes       map[string]string // rank 0's are kept
}

// meets says whether the others will hear of what is wrong with this part: then they must.
func (p Part) meets() bool {
	return p.Step >= 0 && p.Store != nil && p.Rank >= 0 && p.Rank < p.World
}

func (p Part) validate() error {
	var errs []error
	if p.Step < 0 {
		errs = append(errs, fmt.Errorf("the step must not be negative, but is %d", p.Step))
	}
	if p.Rank < 0 || p.Rank >= max(p.World, 1) {
		errs = append(errs, fmt.Errorf("the rank must be at least 0 and less than the world size %d, but is %d", p.World, p.Rank))
	}
	if p.World > 1 && p.Store == nil {
		errs = append(errs, errors.New("several workers need a Store to meet in"))
	}
	for _, x := range p.Pieces {
		if _, err := x.describe(); err != nil {
			errs = append(errs, err)
		}
	}
	if errs != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, errors.Join(errs...))
	}
	return nil
}

// describe works out how many rows there are, and their checksum.
func (x Piece) describe() (piece, error) {
	p := piece{Key: x.Name, Name: x.Name, DType: x.DType, Shape: x.Shape, Begin: x.Begin, Rows: 1}
	if len(x.Shape) == 0 && x.Begin != 0 {
		return p, fmt.Errorf("tensor %q is a scalar, and has no row %d", x.Name, x.Begin)
	}
	row, err := p.info().Bits()
	if err != nil {
		return p, fmt.Errorf("tensor %q: %w", x.Name, err)
	}
	n := int64(len(x.Data))
	switch {
	case row > 0 && 8*n%row == 0:
		p.Rows = int(8 * n / row)
	case row == 0 && n == 0:
		p.Rows = rowsOf(x.Shape) - x.Begin
	default:
		return p, fmt.Errorf("tensor %q: %d bytes are no whole number of rows of %d bits", x.Name, n, row)
	}
	if _, err := p.before(x.Begin); err != nil {
		return p, fmt.Errorf("tensor %q: rows from %d on: %w", x.Name, x.Begin, err)
	}
	if x.Begin < 0 || x.Begin+p.Rows > rowsOf(x.Shape) {
		return p, fmt.Errorf("tensor %q: rows %d to %d of %d", x.Name, x.Begin, x.Begin+p.Rows, rowsOf(x.Shape))
	}
	if p.Rows != rowsOf(x.Shape) {
		p.Key = x.Name + "@" + strconv.Itoa(x.Begin)
	}
	p.Sum = sum(x.Data)
	return p, nil
}

// Save writes this worker's part and returns when the checkpoint is whole, which needs the parts of
// all. An error leaves the older checkpoints as they were.
func (d *Dir) Save(c context.Context, part Part) error {
	if err := part.validate(); err != nil && !part.meets() {
		return err
	}
	turn := d.turn(part.Rank)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-c.Done():
		return context.Cause(c)
	}
	if err := d.save(c, part); err != nil {
		return fmt.Errorf("checkpoint of step %d, rank %d: %w", part.Step, part.Rank, err)
	}
	return nil
}

// Pending is a checkpoint that is being saved beside other work.
type Pending struct {
	once sync.Once
	done chan error
	err  error
}

// Start copies what is to be saved and saves it beside the caller's other work. It waits for a save
// that is under way, so that there is memory for one copy at most. c bounds the save, too.
func (d *Dir) Start(c context.Context, part Part) (*Pending, error) {
	if err := part.validate(); err != nil && !part.meets() {
		return nil, err
	}
	turn := d.turn(part.Rank)
	select {
	case turn <- struct{}{}:
	case <-c.Done():
		return nil, context.Cause(c)
	}
	pieces := part.Pieces
	part.Pieces = make([]Piece, len(pieces))
	for i, x := range pieces {
		x.Data = append([]byte(nil), x.Data...)
		part.Pieces[i] = x
	}
	p := &Pending{done: make(chan error, 1)}
	go func() {
		err := d.save(c, part)
		<-turn
		if err != nil {
			err = fmt.Errorf("checkpoint of step %d, rank %d: %w", part.Step, part.Rank, err)
		}
		p.done <- err
	}()
	return p, nil
}

// Wait returns when the checkpoint is whole, or why it is not. It may be called again.
func (p *Pending) Wait() error {
	p.once.Do(func() { p.err = <-p.done })
	return p.err
}

// The workers of one save meet at these keys: where rank 0 says which folder it is, and those of
// that folder, which nobody else uses.
func keyFolder(step int64) string { return fmt.Sprintf("checkpoint/%d", step) }

func keyOf(folder, what string) string { return "checkpoint/" + folder + "/" + what }

// noFolder begins what rank 0 says where there is none to write to.
const noFolder = "!"

func (d *Dir) save(c context.Context, part Part) error {
	if part.Rank != 0 {
		return d.follow(c, part)
	}
	dir, name, err := d.makeFolder(part.Step)
	if err == nil {
		defer dir.Close()
	}
	if part.World <= 1 {
		return d.lead(c, dir, name, part, err)
	}
	if err != nil {
		name = noFolder + rand.Text()
	}
	if err := part.Store.Set(c, keyFolder(part.Step), []byte(name)); err != nil {
		return err
	}
	err = d.lead(c, dir, name, part, err)
	said := "ok"
	if err != nil {
		said = err.Error()
	}
	c, cancel := context.WithTimeout(context.WithoutCancel(c), time.Second) // the others hear of a cancellation, too
	defer cancel()
	_, gone := part.Store.Delete(c, keyFolder(part.Step))
	return errors.Join(err, gone, part.Store.Set(c, keyOf(name, "end"), []byte(said)))
}

// follow writes the part of a rank other than 0, and waits for the manifest.
func (d *Dir) follow(c context.Context, part Part) error {
	b, err := part.Store.Get(c, keyFolder(part.Step))
	if err != nil {
		return err
	}
	name := string(b)
	step, _, isFolder := parseFolder(name)
	if refused := strings.HasPrefix(name, noFolder); !refused && (!isFolder || step != part.Step) {
		return fmt.Errorf("%w: a folder called %q", ErrInvalid, name)
	}
	var said []byte
	if isFolder {
		var s shard
		s, err = d.writeIn(c, name, part)
		said, _ = json.Marshal(s)
	}
	if err != nil {
		said = []byte("!" + err.Error())
	}
	if err := errors.Join(err, part.Store.Set(c, keyOf(name, strconv.Itoa(part.Rank)), said)); err != nil {
		return err
	}
	end, err := part.Store.Get(c, keyOf(name, "end"))
	if err != nil {
		return err
	}
	// The last one to hear it tidies up. What is left where somebody is lost goes with the round's
	// store.
	if n, err := part.Store.Add(c, keyOf(name, "heard"), 1); err == nil && n == int64(part.World)-1 {
		_, _ = part.Store.Delete(c, keyOf(name, "end"))
		_, _ = part.Store.Delete(c, keyOf(name, "heard"))
	}
	if string(end) != "ok" {
		return fmt.Errorf("rank 0 says: %s", end)
	}
	return nil
}

// lead writes rank 0's part, and the manifest when all have written theirs. Whatever goes wrong,
// and failed has already, it waits for the others: who came later would not hear of it.
func (d *Dir) lead(c context.Context, dir *os.Root, name string, part Part, failed error) error {
	m := manifest{Version: version, Step: part.Step, Notes: part.Notes, Shards: make([]shard, max(part.World, 1))}
	if failed == nil {
		m.Shards[0], failed = d.write(c, dir, part)
	}
	for rank := 1; rank < part.World; rank++ {
		key := keyOf(name, strconv.Itoa(rank))
		said, err := part.Store.Get(c, key)
		if err == nil {
			_, err = part.Store.Delete(c, key)
		}
		if err != nil {
			return errors.Join(failed, fmt.Errorf("rank %d's part: %w", rank, err))
		}
		if failed != nil {
			continue
		}
		if len(said) > 0 && said[0] == '!' {
			failed = fmt.Errorf("rank %d's part: it says: %s", rank, said[1:])
		} else if err := json.Unmarshal(said, &m.Shards[rank]); err != nil {
			failed = fmt.Errorf("rank %d's part: %w", rank, err)
		}
	}
	if failed != nil {
		return failed
	}
	if err := m.check(); err != nil {
		return err
	}
	text, err := m.encode()
	if err != nil {
		return err
	}
	err = d.writeFile(dir, manifestName, func(w io.Writer) error { _, err := w.Write(text); return err })
	if err != nil {
		return err
	}
	return d.prune(name)
}

// makeFolder makes a folder that nobody has used, and opens it.
func (d *Dir) makeFolder(step int64) (dir *os.Root, name string, err error) {
	all, err := private.Folder(d.path)
	if err != nil {
		return nil, "", err
	}
	defer all.Close()
	for attempt := 0; ; attempt++ {
		name = fmt.Sprintf(folderFormat, step, attempt)
		err = all.Mkdir(name, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, "", err
		}
	}
	if err = d.syncFolder(all); err == nil {
		dir, err = all.OpenRoot(name)
	}
	return dir, name, err
}

// writeIn writes one worker's file in a folder that rank 0 has made.
func (d *Dir) writeIn(c context.Context, name string, part Part) (shard, error) {
	all, err := private.Folder(d.path)
	if err != nil {
		return shard{}, err
	}
	defer all.Close()
	dir, err := all.OpenRoot(name)
	if err != nil {
		return shard{}, err
	}
	defer dir.Close()
	return d.write(c, dir, part)
}

// write writes one worker's file.
func (d *Dir) write(c context.Context, dir *os.Root, part Part) (shard, error) {
	s := shard{File: fmt.Sprintf("rank-%05d-of-%05d.safetensors", part.Rank, max(part.World, 1))}
	if err := part.validate(); err != nil {
		return s, err
	}
	var tensors []safetensors.Tensor
	for _, x := range part.Pieces {
		p, err := x.describe()
		if err != nil {
			return s, err
		}
		s.Pieces = append(s.Pieces, p)
		tensors = append(tensors, safetensors.Tensor{Name: p.Key, Info: p.info(), Data: x.Data})
	}
	err := d.writeFile(dir, s.File, func(w io.Writer) error {
		if c.Err() != nil {
			return context.Cause(c)
		}
		return safetensors.Write(w, tensors, map[string]string{"step": strconv.FormatInt(part.Step, 10)})
	})
	if err != nil {
		return s, err
	}
	o, err := read(dir.Open(s.File))
	if err != nil {
		return s, err
	}
	s.Bytes, s.Head = o.size, o.head
	return s, o.f.Close()
}

// writeFile writes a file under another name, brings it to the disk and gives it its name.
func (d *Dir) writeFile(dir *os.Root, name string, write func(io.Writer) error) (err error) {
	f, err := dir.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = dir.Remove(name + ".tmp")
		}
	}()
	buffered := bufio.NewWriterSize(f, 1<<20)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = d.sync(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err = dir.Rename(name+".tmp", name); err != nil {
		return err
	}
	return d.syncFolder(dir)
}

// syncFolder brings the names in a folder to the disk.
func (d *Dir) syncFolder(dir *os.Root) error {
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.sync(f), f.Close())
}

// prune removes checkpoints that are no longer kept, and what older attempts have left.
func (d *Dir) prune(newest string) error {
	dir, err := private.Folder(d.path)
	if err != nil {
		return err
	}
	defer dir.Close()
	all, err := folders(d.path)
	kept, older := 0, false
	for _, f := range all {
		older = older || f.name == newest
		switch {
		case !older: // somebody goes on from a later step that did not become whole, or saves it now
			continue
		case f.whole && kept < d.cfg.Keep:
			kept++
			continue
		}
		err = errors.Join(err, dir.Remove(filepath.Join(f.name, manifestName))) // first, so that it is never half there
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		err = errors.Join(err, dir.RemoveAll(f.name))
	}
	return err
}
