package errorfile

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/internal/printable"
)

// What is kept of an error file.
const (
	MaxSize    = 64 << 10 // bytes that are read of one
	MaxMessage = 1 << 10  // bytes of its message
	MaxLine    = 1 << 10  // bytes of a line of its stack
	maxStack   = 40       // lines of its stack
)

// File is where a worker may write why it fails.
type File struct {
	Path   string   // "" if there is none
	memory *os.File // nil if it is a file on disk
}

// Read takes what the worker has written, up to a bound.
func (f File) Read() []byte {
	file := f.memory
	if file == nil {
		info, err := os.Lstat(f.Path)
		if err != nil || !info.Mode().IsRegular() { // a fifo would keep us
			return nil
		}
		if file, err = os.Open(f.Path); err != nil {
			return nil
		}
		defer file.Close()
	}
	b, _ := io.ReadAll(io.NewSectionReader(file, 0, MaxSize)) // a part of it says something, too
	return b
}

// Name is the path of a file that stays, "" of one in memory.
func (f File) Name() string {
	if f.memory != nil {
		return ""
	}
	return f.Path
}

// Close frees the memory of a file that is there.
func (f File) Close() {
	if f.memory != nil {
		_ = f.memory.Close()
	}
}

// Write writes to a file why a worker is about to fail.
func Write(path string, why error) error {
	var e content
	e.Message.Message = why.Error()
	e.Message.ExtraInfo.Timestamp = strconv.FormatInt(time.Now().Unix(), 10)
	b, err := json.Marshal(e)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	return err
}

// content is an error file as PyTorch's @record writes it.
type content struct {
	Message struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Stack     string `json:"py_callstack,omitempty"`
			Timestamp string `json:"timestamp,omitempty"`
		} `json:"extraInfo"`
		ErrorCode int `json:"errorCode,omitempty"`
	} `json:"message"`
}

// Reason is what an error file says.
type Reason struct {
	Message string
	Stack   []string
	Time    time.Time // zero if it does not say
}

// Parse reads an error file: PyTorch's, one whose message is a text, or any text.
func Parse(b []byte) (r Reason) {
	var torch content
	var plain struct {
		Message string `json:"message"`
	}
	switch b = bytes.TrimSpace(b); {
	case len(b) == 0:
	case json.Unmarshal(b, &torch) == nil:
		r.Message = torch.Message.Message
		r.Stack = strings.Split(strings.TrimSpace(torch.Message.ExtraInfo.Stack), "\n")
		if s, err := strconv.ParseInt(torch.Message.ExtraInfo.Timestamp, 10, 64); err == nil {
			r.Time = time.Unix(s, 0)
		}
	case json.Unmarshal(b, &plain) == nil:
		r.Message = plain.Message
	default:
		r.Message = string(b)
	}
	r.Message = printable.Lines(strings.TrimSpace(r.Message), MaxMessage)
	if r.Stack = r.Stack[max(0, len(r.Stack)-maxStack):]; len(r.Stack) == 1 && r.Stack[0] == "" {
		r.Stack = nil
	}
	for i, line := range r.Stack {
		r.Stack[i] = printable.Lines(line, MaxLine)
	}
	return r
}
