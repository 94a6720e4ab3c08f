package elastic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weft-project/weft/internal/printable"
)

// ErrorFileVariable is the environment variable that names the file in which a worker says why it
// fails.
const ErrorFileVariable = "TORCHELASTIC_ERROR_FILE"

const (
	maxErrorFile = 64 << 10 // what is read of one
	maxMessage   = 1 << 10  // and kept of its message, in bytes
	maxStack     = 40       // and of its stack, in lines
)

// errorFile is where a worker may write why it fails. Without a log folder it is memory that has no
// name of its own, so that nothing is left of it when this process is killed.
type errorFile struct {
	path   string // "" if there is none
	memory *os.File
}

// read takes what the worker has written, up to a bound.
func (f errorFile) read() []byte {
	file := f.memory
	if file == nil {
		info, err := os.Lstat(f.path)
		if err != nil || !info.Mode().IsRegular() { // a fifo would keep us
			return nil
		}
		if file, err = os.Open(f.path); err != nil {
			return nil
		}
		defer file.Close()
	}
	b, _ := io.ReadAll(io.NewSectionReader(file, 0, maxErrorFile)) // a part of it says something, too
	return b
}

// name is the file's, if it stays.
func (f errorFile) name() string {
	if f.memory != nil {
		return ""
	}
	return f.path
}

func (f errorFile) close() {
	if f.memory != nil {
		_ = f.memory.Close()
	}
}

// WriteError writes why this worker is about to fail where its agent finds it, for the report of
// the job's failure. It does nothing where no agent has named a file.
func WriteError(why error) error {
	path := os.Getenv(ErrorFileVariable)
	if path == "" || why == nil {
		return nil
	}
	var e torchError
	e.Message.Message = why.Error()
	e.Message.ExtraInfo.Timestamp = strconv.FormatInt(time.Now().Unix(), 10)
	b, err := json.Marshal(e)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("elastic: the error file: %w", err)
	}
	return nil
}

// torchError is an error file as PyTorch's @record writes it.
type torchError struct {
	Message struct {
		Message   string `json:"message"`
		ExtraInfo struct {
			Stack     string `json:"py_callstack,omitempty"`
			Timestamp string `json:"timestamp,omitempty"`
		} `json:"extraInfo"`
		ErrorCode int `json:"errorCode,omitempty"`
	} `json:"message"`
}

// reason is what an error file says.
type reason struct {
	message string
	stack   []string
	time    time.Time // zero if it does not say
}

// parseReason reads an error file: PyTorch's, one whose message is a text, or any text.
func parseReason(b []byte) (r reason) {
	var torch torchError
	var plain struct {
		Message string `json:"message"`
	}
	switch b = bytes.TrimSpace(b); {
	case len(b) == 0:
	case json.Unmarshal(b, &torch) == nil:
		r.message = torch.Message.Message
		r.stack = strings.Split(strings.TrimSpace(torch.Message.ExtraInfo.Stack), "\n")
		if s, err := strconv.ParseInt(torch.Message.ExtraInfo.Timestamp, 10, 64); err == nil {
			r.time = time.Unix(s, 0)
		}
	case json.Unmarshal(b, &plain) == nil:
		r.message = plain.Message
	default:
		r.message = string(b)
	}
	r.message = printable.Lines(strings.TrimSpace(r.message), maxMessage)
	if r.stack = r.stack[max(0, len(r.stack)-maxStack):]; len(r.stack) == 1 && r.stack[0] == "" {
		r.stack = nil
	}
	for i, line := range r.stack {
		r.stack[i] = printable.Lines(line, maxTailLine)
	}
	return r
}

// CopyTo writes the worker's error file, with the exit code in it, to a file: a launcher of this
// launcher may have named one.
func (e *WorkerError) CopyTo(path string) error {
	var whole map[string]any
	if json.Unmarshal(e.raw, &whole) != nil || whole == nil {
		whole = map[string]any{}
	}
	message, ok := whole["message"].(map[string]any)
	if !ok {
		message = map[string]any{"message": e.brief(), "extraInfo": map[string]any{"timestamp": strconv.FormatInt(e.Time.Unix(), 10)}}
		whole["message"] = message
	}
	message["errorCode"] = e.Code
	b, err := json.Marshal(whole)
	if err != nil {
		return errors.New("elastic: an error file that cannot be written again")
	}
	return os.WriteFile(path, b, 0o600)
}
