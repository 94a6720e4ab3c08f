package passgraph

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile writes the graph to a file: as a picture where its name ends in .svg, in Graphviz'
// language where it ends in .dot.
func (g *Graph) WriteFile(name string) error {
	var write func(io.Writer) error
	switch ext := filepath.Ext(name); ext {
	case ".svg":
		write = g.WriteSVG
	case ".dot":
		write = g.WriteDOT
	default:
		return fmt.Errorf("a graph cannot be written to %s: its name must end in .svg or .dot", name)
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
