package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/weft-project/weft/internal/private"
	"github.com/weft-project/weft/internal/safetensors"
)

// Errors of this package, for errors.Is.
var (
	ErrCorrupt = errors.New("corrupt checkpoint")
	ErrNone    = errors.New("there is no whole checkpoint")
	ErrInvalid = errors.New("not a valid checkpoint")
)

const (
	manifestName = "manifest.json"
	maxManifest  = 256 << 20
	version      = 1
)

// manifest is what makes a folder a checkpoint.
type manifest struct {
	Version int               `json:"version"`
	Step    int64             `json:"step"`
	Notes   map[string]string `json:"notes,omitempty"`
	Shards  []shard           `json:"shards"`
}

// shard is one worker's file.
type shard struct {
	File   string  `json:"file"`
	Bytes  int64   `json:"bytes"`
	Head   uint32  `json:"head_crc32c"` // of the bytes before the tensors'
	Pieces []piece `json:"pieces"`
}

// piece is a tensor, or some rows of it, in a shard, where it has the name Key.
type piece struct {
	Key   string `json:"key"`
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"` // of the whole tensor
	Begin int    `json:"begin"` // first row that is here
	Rows  int    `json:"rows"`
	Sum   uint32 `json:"crc32c"` // of its bytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// info is the tensor as its file has it.
func (p piece) info() safetensors.Info {
	shape := slices.Clone(p.Shape)
	if len(shape) > 0 {
		shape[0] = p.Rows
	}
	return safetensors.Info{DType: p.DType, Shape: shape}
}

// before is how many bytes of the whole tensor are before a row.
func (p piece) before(row int) (int64, error) {
	if row == 0 {
		return 0, nil
	}
	p.Rows = row
	return p.info().Bytes()
}

// encode writes the manifest, and in a last line its own checksum.
func (m manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	b = append(b, '\n')
	return fmt.Appendf(b, "crc32c %08x\n", sum(b)), nil
}

// decode reads what encode wrote.
func decode(b []byte) (*manifest, error) {
	end := bytes.LastIndexByte(bytes.TrimSuffix(b, []byte("\n")), '\n') + 1
	if got, want := string(b[end:]), fmt.Sprintf("crc32c %08x\n", sum(b[:end])); got != want {
		return nil, fmt.Errorf("%w: its checksum is not that of its text", ErrCorrupt)
	}
	m := new(manifest)
	if err := json.Unmarshal(b[:end], m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if m.Version != version {
		return nil, fmt.Errorf("%w: version %d, expected %d", ErrInvalid, m.Version, version)
	}
	return m, m.check()
}

// check sees that the pieces of every tensor make it whole.
func (m *manifest) check() error {
	tensors := map[string][]piece{}
	for _, s := range m.Shards {
		if !private.IsName(s.File) || s.Bytes < 0 {
			return fmt.Errorf("%w: a shard %q of %d bytes", ErrCorrupt, s.File, s.Bytes)
		}
		room := s.Bytes
		for _, p := range s.Pieces {
			n, err := p.info().Bytes()
			if err == nil {
				_, err = p.before(p.Begin)
			}
			if err != nil || p.Begin < 0 || p.Rows < 0 || p.Begin > rowsOf(p.Shape)-p.Rows {
				return fmt.Errorf("%w: tensor %q has rows %d to %d of %v %s: %w", ErrInvalid, p.Name, p.Begin, p.Begin+p.Rows, p.Shape, p.DType, cmp.Or(err, ErrInvalid))
			}
			if room -= n; room < 0 { // nobody is to take memory for what is in no file
				return fmt.Errorf("%w: the tensors of %s have more than its %d bytes", ErrInvalid, s.File, s.Bytes)
			}
			tensors[p.Name] = append(tensors[p.Name], p)
		}
	}
	for name, pieces := range tensors {
		if err := whole(pieces); err != nil {
			return fmt.Errorf("%w: tensor %q: %w", ErrInvalid, name, err)
		}
	}
	return nil
}

// whole says why pieces do not make one tensor. Several workers may have the same rows.
func whole(pieces []piece) error {
	slices.SortFunc(pieces, func(a, b piece) int { return cmp.Or(cmp.Compare(a.Begin, b.Begin), cmp.Compare(a.Rows, b.Rows)) })
	first, next := pieces[0], 0
	for _, p := range pieces {
		switch {
		case p.DType != first.DType || !slices.Equal(p.Shape, first.Shape):
			return fmt.Errorf("one worker has it as %v %s, another as %v %s", first.Shape, first.DType, p.Shape, p.DType)
		case p.Begin > next:
			return fmt.Errorf("nobody has rows %d to %d", next, p.Begin)
		}
		next = max(next, p.Begin+p.Rows)
	}
	if rows := rowsOf(first.Shape); next != rows {
		return fmt.Errorf("workers have %d rows of %d", next, rows)
	}
	return nil
}

// rowsOf is the size of the first dimension; a scalar has one row.
func rowsOf(shape []int) int {
	if len(shape) == 0 {
		return 1
	}
	return shape[0]
}

// folder is a folder that is named as a checkpoint is.
type folder struct {
	name    string
	step    int64
	attempt int
	whole   bool // it has a manifest
}

const folderFormat = "step-%012d.%d"

// parseFolder reads the name of a checkpoint's folder; ok says that it is one.
func parseFolder(name string) (step int64, attempt int, ok bool) {
	first, second, ok := strings.Cut(strings.TrimPrefix(name, "step-"), ".")
	step, errStep := strconv.ParseInt(first, 10, 64)
	attempt, errAttempt := strconv.Atoi(second)
	return step, attempt, ok && errStep == nil && errAttempt == nil && name == fmt.Sprintf(folderFormat, step, attempt)
}

// folders are those in dir, the newest first.
func folders(dir string) ([]folder, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []folder
	for _, e := range entries {
		step, attempt, ok := parseFolder(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		_, err := os.Stat(filepath.Join(dir, e.Name(), manifestName))
		out = append(out, folder{name: e.Name(), step: step, attempt: attempt, whole: err == nil})
	}
	slices.SortFunc(out, func(a, b folder) int { return cmp.Or(cmp.Compare(b.step, a.step), cmp.Compare(b.attempt, a.attempt)) })
	return out, nil
}
