package output

import (
	"fmt"
	"os"
)

// File is a log file. One that cannot be written any more, as the disk is full, does not stall its
// worker. A nil File keeps nothing.
type File struct {
	file     *os.File
	complain func(error)
	broken   bool
}

// NewFile keeps a stream in an open file, which it owns. complain is called once, when the file
// cannot be written any more.
func NewFile(file *os.File, complain func(error)) *File {
	return &File{file: file, complain: complain}
}

func (f *File) keep(p []byte) {
	if f == nil || f.broken {
		return
	}
	if _, err := f.file.Write(p); err != nil {
		f.broken = true
		f.complain(fmt.Errorf("no more is kept of a worker's output: %w", err))
	}
}

// Name is the path of the file.
func (f *File) Name() string {
	if f == nil {
		return ""
	}
	return f.file.Name()
}

// Close ends the file.
func (f *File) Close() {
	if f == nil {
		return
	}
	if err := f.file.Close(); err != nil && !f.broken {
		f.complain(fmt.Errorf("no more is kept of a worker's output: %w", err))
	}
}
