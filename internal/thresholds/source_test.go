package thresholds

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// constants finds the whole numbers that the source of some folders gives names, in functions too,
// by folder and name.
type constants map[string][]int

// read adds the constants of a file of a folder. What is computed of other constants, or by iota,
// is left out.
func (c constants) read(folder, name string, text any) error {
	f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		for k := 0; ok && k < min(len(s.Names), len(s.Values)); k++ {
			if v, ok := number(s.Values[k]); ok {
				key := folder + "." + s.Names[k].Name
				c[key] = append(c[key], v)
			}
		}
		return true
	})
	return nil
}

// number is the value of an expression of literals.
func number(e ast.Expr) (v int, ok bool) {
	n, exact := constant.Int64Val(constant.ToInt(evaluate(e)))
	return int(n), exact
}

func evaluate(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.ParenExpr:
		return evaluate(e.X)
	case *ast.BinaryExpr:
		x, y := constant.ToInt(evaluate(e.X)), constant.ToInt(evaluate(e.Y))
		if x.Kind() != constant.Int || y.Kind() != constant.Int {
			break
		}
		switch by, _ := constant.Uint64Val(y); e.Op {
		case token.SHL:
			return constant.Shift(x, e.Op, uint(by))
		case token.ADD, token.SUB, token.MUL:
			return constant.BinaryOp(x, e.Op, y)
		}
	}
	return constant.MakeUnknown()
}

// rooms are the folders whose large constants are all looked at: what computes values and what
// carries them.
var rooms = []string{"autodiff", "kernels", "device", "transport", "ctx", "rpc", "collective"}

// beside are folders in the rooms that hold no such code: what tests use, generated code, and
// drivers and interpreters of GPUs, which are beneath the kernels.
var beside = []string{"device/cuda", "transport/internal/transporttest", "transport/simnet", "ctx/passgraph", "rpc/trace"}

const root = "../.."

func read(t *testing.T) constants {
	t.Helper()
	found := constants{}
	for _, room := range rooms {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, room), func(name string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(root, name)
			rel = filepath.ToSlash(rel)
			switch {
			case err != nil:
				return err
			case d.IsDir() && slices.Contains(beside, rel):
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go"):
				return nil
			}
			return found.read(path.Dir(rel), name, nil)
		}))
	}
	return found
}

// large is from which value on a constant is looked at. Smaller ones are mostly tiles, ranks and
// counts of little; those that are thresholds are in the table, too, but nothing finds a new one.
const large = 1024

// wrong says what the table and the list of others lack, and have too much, for some constants.
func wrong(found constants, all []Threshold, others map[string]string) (errs []string) {
	known := map[string]bool{}
	for _, t := range all {
		known[t.Name] = true
		if !slices.Contains(found[t.Name], t.Value) {
			errs = append(errs, fmt.Sprintf("%s is %v in the source, and %d in the table", t.Name, found[t.Name], t.Value))
		}
		if t.By == 0 {
			errs = append(errs, fmt.Sprintf("no random test draws around %s", t.Name))
		}
	}
	for folder, names := range others {
		for name := range strings.FieldsSeq(names) {
			key := folder + "." + name
			if known[key] || len(found[key]) == 0 {
				errs = append(errs, fmt.Sprintf("%s is among those that are no thresholds: it is one, or there is no such constant", key))
			}
			known[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if v := slices.Max(found[key]); v >= large && !known[key] {
			errs = append(errs, fmt.Sprintf("%s is %d: add it to the table, so that random tests draw around it, or to the list of those that are no thresholds", key, v))
		}
	}
	return errs
}

func TestEveryThresholdOfTheSourceIsInTheTable(t *testing.T) {
	require.Empty(t, strings.Join(wrong(read(t), All(), noThresholds), "\n"))
}

func TestAThresholdThatNoRandomTestDrawsAroundIsFound(t *testing.T) {
	found := constants{}
	require.NoError(t, found.read("room", "a.go", "package a\nconst known, odd, few = 4<<10, iota, 3\nfunc f() { const hidden = (1+1)<<12 }"))
	require.Equal(t, constants{"room.known": {4096}, "room.few": {3}, "room.hidden": {8192}}, found)
	known, hidden := Threshold{"room.known", 4096, Bytes, Programs}, Threshold{"room.hidden", 8192, Elems, Kernels}
	require.Empty(t, wrong(found, []Threshold{known, hidden}, nil))
	require.Empty(t, wrong(found, []Threshold{known}, map[string]string{"room": "hidden"}))
	for want, all := range map[string][]Threshold{
		"room.hidden is 8192: add it":             {known},
		"room.known is [4096] in the source":      {{"room.known", 4095, Bytes, Programs}, hidden},
		"room.gone is [] in the source":           {known, hidden, {"room.gone", 1, Bytes, Programs}},
		"no random test draws around room.hidden": {known, {"room.hidden", 8192, Elems, 0}},
	} {
		require.Contains(t, strings.Join(wrong(found, all, nil), "\n"), want)
	}
	require.Contains(t, strings.Join(wrong(found, []Threshold{known, hidden}, map[string]string{"room": "known gone"}), "\n"), "room.gone is among")
}

// A suite that no test draws around would leave its thresholds alone.
func TestEverySuiteIsDrawnByTestsThatMissNothing(t *testing.T) {
	type folder struct{ draws, asks bool }
	used := map[string]map[string]folder{} // by suite and folder
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, suite := range []string{"Programs", "Passes", "Kernels", "GPU", "Messages", "Calls", "Lowered", "Pieces", "Windows"} {
			if used[suite] == nil {
				used[suite] = map[string]folder{}
			}
			f := used[suite][filepath.Dir(name)]
			f.draws = f.draws || strings.Contains(string(text), "thresholds."+suite)
			f.asks = f.asks || strings.Contains(string(text), "require.Empty(t, ") && strings.Contains(string(text), ".Missing())")
			used[suite][filepath.Dir(name)] = f
		}
		return err
	}))
	for suite, folders := range used {
		require.Contains(t, slices.Collect(maps.Values(folders)), folder{true, true}, suite)
	}
}

func TestADrawerGoesAroundAllThresholdsOfItsSuite(t *testing.T) {
	a, b, c := Threshold{"a", 16, Bytes, Kernels}, Threshold{"b", 9, Elems, Kernels | Programs}, Threshold{"c", 7, Elems, Programs}
	d := around([]Threshold{a, b, c}, Kernels, nil)
	require.Equal(t, []string{"a", "b"}, d.Missing())
	var elems []int
	for range d.Len() {
		at, side := d.Next()
		elems = append(elems, at.Elems(8, side))
	}
	require.Equal(t, []int{1, 2, 3, 8, 9, 10}, elems)
	require.Empty(t, d.Missing())
	at, side := d.Next()
	require.Equal(t, 1, at.Elems(8, side), "and again")
	one := around([]Threshold{a, b, c}, Programs, []Unit{Bytes})
	require.Zero(t, one.Len())
	two := around([]Threshold{a, b, c}, Kernels, []Unit{Elems})
	two.Next()
	two.Next()
	require.Equal(t, []string{"b"}, two.Missing(), "it was not above it yet")
}
