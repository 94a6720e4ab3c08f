package cu

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io"
	"maps"
	"slices"
)

// archives hold the PTX of all sources: one for each architecture, by the name that [Archive]
// gives.
//
//go:embed *.zip
var archives embed.FS

// Module is the PTX of a module, nil for one that there is not.
func Module(name string) []byte {
	files, err := archives.ReadDir(".")
	if err != nil {
		return nil
	}
	for _, f := range files {
		b, err := archives.ReadFile(f.Name())
		if err != nil {
			return nil
		}
		z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return nil
		}
		if text, err := Entry(z, name+".ptx"); err == nil {
			return text
		}
	}
	return nil
}

// Pack writes files as an archive, the same one for the same files.
func Pack(w io.Writer, files map[string][]byte) error {
	z := zip.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		to, err := z.Create(name)
		if err != nil {
			return err
		}
		if _, err := to.Write(files[name]); err != nil {
			return err
		}
	}
	return z.Close()
}

// Unpack reads what Pack wrote.
func Unpack(b []byte) (map[string][]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range z.File {
		if files[f.Name], err = Entry(z, f.Name); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return files, nil
}

// Entry reads a file of an archive.
func Entry(z *zip.Reader, name string) ([]byte, error) {
	f, err := z.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
