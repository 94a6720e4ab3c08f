package loader

import (
	"errors"
	"fmt"
)

// What can go wrong.
var (
	// ErrConfig: a Config that cannot be.
	ErrConfig = errors.New("bad configuration")
	// ErrData: data that cannot be read; see [FileError].
	ErrData = errors.New("bad data")
	// ErrClosed: the loader or the file was closed.
	ErrClosed = errors.New("closed")
)

// FileError says where in which file something is wrong.
type FileError struct {
	File string
	Line int // of a text, from 1; 0: the file as a whole
	Err  error
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v: %v", e.File, ErrData, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v: %v", e.File, e.Line, ErrData, e.Err)
}

// Unwrap gives ErrData and the cause.
func (e *FileError) Unwrap() []error { return []error{ErrData, e.Err} }

// Error says at which step a batch could not be made, and of which row; −1 where it is none's.
type Error struct {
	Step uint64
	Row  int
	Err  error
}

func (e *Error) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("loader: step %d: %v", e.Step, e.Err)
	}
	return fmt.Sprintf("loader: step %d, row %d: %v", e.Step, e.Row, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }
