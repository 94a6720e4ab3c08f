package tools

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	mostFiles   = 25  // in a package, without tests
	mostDoc     = 40  // lines of a package's documentation
	mostColumns = 100 // of a comment that has a line of its own
	mostTypes   = 10  // that define a method of one name, unless it is an interface's
)

// TestTheHouseKeepsItsRules reads all Go files of the project.
func TestTheHouseKeepsItsRules(t *testing.T) {
	h := readHouse(t, "..")
	if len(h.files) < 50 {
		t.Fatalf("%d packages were found: the project was not read right", len(h.files))
	}
	for _, complaint := range h.complaints() {
		t.Error(complaint)
	}
}

func TestWhatBreaksARuleOfTheHouseIsFound(t *testing.T) {
	dir := t.TempDir()
	for k := range mostFiles + 1 {
		write(t, dir, fmt.Sprintf("many/f%d.go", k), "package many\n")
		write(t, dir, fmt.Sprintf("many/f%d_test.go", k), "package many\n")
	}
	for k := range mostFiles {
		write(t, dir, fmt.Sprintf("few/f%d.go", k), "package few\n")
	}
	write(t, dir, "long/doc.go", strings.Repeat("// Line.\n", mostDoc+1)+"package long\n")
	write(t, dir, "wide/wide.go", "package wide\n\n// "+strings.Repeat("ä", mostColumns-3)+"\nvar a int // "+strings.Repeat("b", mostColumns)+
		"\n\n\t// "+strings.Repeat("c", mostColumns-3)+"\nvar b int\n")
	for k := range mostTypes + 1 {
		write(t, dir, fmt.Sprintf("verbs/v%d/v.go", k), fmt.Sprintf(
			"package v%d\n\ntype t struct{}\n\nfunc (t) settle() {}\n\nfunc (*t) Served() {}\n\nfunc (t) own() {}\n\ntype u[T any] struct{}\n\nfunc (u[T]) join() {}\n\ntype owner interface{ own() }\n", k))
	}
	write(t, dir, "server.go", "package p\n\n// Server is known.\ntype Server interface{ Served() }\n")
	verbs := func(name string) string {
		var all []string
		for k := range mostTypes + 1 {
			all = append(all, fmt.Sprintf("verbs/v%d %s", k, name))
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	got := readHouse(t, dir).complaints()
	want := []string{
		"long: the documentation of the package has 41 lines; at most 40",
		"many: 26 files without tests; at most 25",
		"method join is defined on 11 types; at most 10, unless it is an interface's; rename one: " + verbs("u"),
		"method settle is defined on 11 types; at most 10, unless it is an interface's; rename one: " + verbs("t"),
		"wide/wide.go:6: a comment of 101 columns; at most 100",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// house is what the rules speak of.
type house struct {
	files   map[string]int             // by folder, without tests
	doc     map[string]int             // lines of a package's documentation
	wide    []string                   // complaints of comments
	methods map[string]map[string]bool // name → folder + " " + type that defines it
	ifaces  map[string]bool            // exported names of interfaces' methods
	within  map[string]bool            // folder + "." + name: of interfaces of a folder
}

// known are methods of the standard library's interfaces.
var known = []string{"String", "Error", "Unwrap", "Is", "As", "Close", "Read", "Write", "Len", "Less", "Swap", "RoundTrip", "ServeHTTP"}

func readHouse(t *testing.T, root string) *house {
	t.Helper()
	h := &house{files: map[string]int{}, doc: map[string]int{}, methods: map[string]map[string]bool{}, ifaces: map[string]bool{}, within: map[string]bool{}}
	for _, name := range known {
		h.ifaces[name] = true
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (name[0] == '.' || name == "testdata" || name == "bin"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(f) {
			return nil
		}
		h.comments(set, filepath.ToSlash(rel), strings.Split(string(text), "\n"), f)
		if !strings.HasSuffix(name, "_test.go") {
			h.source(set, filepath.ToSlash(filepath.Dir(rel)), f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// comments looks at those that have lines of their own: what stands behind code may be longer.
func (h *house) comments(set *token.FileSet, path string, lines []string, f *ast.File) {
	for _, g := range f.Comments {
		for _, c := range g.List {
			at := set.PositionFor(c.Pos(), false)
			for k, text := range strings.Split(c.Text, "\n") {
				line := lines[at.Line-1+k]
				switch {
				case k == 0 && strings.TrimSpace(line[:at.Column-1]) != "": // behind code
					continue
				case strings.HasPrefix(text, "//go:"), strings.HasPrefix(text, "//\t"), strings.HasPrefix(g.List[0].Text, "// Output:"), strings.Contains(text, "://"):
					continue // not prose
				}
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\r")); n > mostColumns {
					h.wide = append(h.wide, fmt.Sprintf("%s:%d: a comment of %d columns; at most %d", path, at.Line+k, n, mostColumns))
				}
			}
		}
	}
}

func (h *house) source(set *token.FileSet, dir string, f *ast.File) {
	h.files[dir]++
	if f.Doc != nil {
		from, to := set.Position(f.Doc.Pos()), set.Position(f.Doc.End())
		h.doc[dir] = max(h.doc[dir], to.Line-from.Line+1)
	}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
			if h.methods[fn.Name.Name] == nil {
				h.methods[fn.Name.Name] = map[string]bool{}
			}
			h.methods[fn.Name.Name][dir+" "+typeName(fn.Recv.List[0].Type)] = true
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		i, ok := n.(*ast.InterfaceType)
		if !ok {
			return true
		}
		for _, m := range i.Methods.List {
			for _, name := range m.Names {
				h.ifaces[name.Name] = h.ifaces[name.Name] || name.IsExported()
				h.within[dir+"."+name.Name] = true
			}
		}
		return true
	})
}

// typeName is a receiver's, without its parameters.
func typeName(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.StarExpr:
		return typeName(of.X)
	case *ast.IndexExpr:
		return typeName(of.X)
	case *ast.IndexListExpr:
		return typeName(of.X)
	case *ast.Ident:
		return of.Name
	}
	return ""
}

// complaints are sorted.
func (h *house) complaints() []string {
	all := slices.Clone(h.wide)
	for dir, n := range h.files {
		if n > mostFiles {
			all = append(all, fmt.Sprintf("%s: %d files without tests; at most %d", dir, n, mostFiles))
		}
	}
	for dir, n := range h.doc {
		if n > mostDoc {
			all = append(all, fmt.Sprintf("%s: the documentation of the package has %d lines; at most %d", dir, n, mostDoc))
		}
	}
	for name, types := range h.methods {
		maps.DeleteFunc(types, func(of string, _ bool) bool {
			dir, _, _ := strings.Cut(of, " ")
			return h.within[dir+"."+name]
		})
		if len(types) > mostTypes && !h.ifaces[name] {
			all = append(all, fmt.Sprintf("method %s is defined on %d types; at most %d, unless it is an interface's; rename one: %s", name, len(types), mostTypes, strings.Join(slices.Sorted(maps.Keys(types)), ", ")))
		}
	}
	slices.Sort(all)
	return all
}
