package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/weft-project/weft"

// TestImportRulesAreTheTableOfTheDesign plants, in a module of stubs, an import from every room
// into every room, and compares what depguard reports with what the table of docs/design.md
// forbids.
func TestImportRulesAreTheTableOfTheDesign(t *testing.T) {
	table := designTable(t)
	dir := stubModule(t)
	var want []string
	for from, may := range table {
		for to := range table {
			file := fmt.Sprintf("%s/imports_%s.go", from, strings.ReplaceAll(to, "/", "_"))
			plant(t, dir, file, module+"/"+to+"/leaf")
			if from != to && !slices.Contains(may, to) && !slices.Contains(may, "all") {
				want = append(want, file)
			}
		}
	}
	if len(want) < len(table) {
		t.Fatalf("the table forbids %d imports in %d rooms: it was not read right", len(want), len(table))
	}
	compare(t, want, depguard(t, dir))
}

// TestTheWallsInsideRoomsAreTheTablesOfTheDesign plants imports between all packages inside a room,
// and from each of them of the room's public face.
func TestTheWallsInsideRoomsAreTheTablesOfTheDesign(t *testing.T) {
	dir := stubModule(t)
	var want []string
	for _, room := range []string{"transport", "store", "rpc", "collective", "parallel", "cmd/weft"} {
		want = append(want, plantWalls(t, dir, room)...)
	}
	compare(t, want, depguard(t, dir))
}

// plantWalls returns the files with a forbidden import.
func plantWalls(t *testing.T, dir, room string) (forbidden []string) {
	t.Helper()
	inside := room + "/internal/"
	walls := wallsTable(t, inside)
	for name := range walls {
		write(t, dir, inside+name+"/leaf/leaf.go", "// Package leaf is empty.\npackage leaf\n")
	}
	for from, may := range walls {
		for to := range walls {
			file := fmt.Sprintf("%s%s/imports_%s.go", inside, from, to)
			plant(t, dir, file, module+"/"+inside+to+"/leaf")
			if from != to && !slices.Contains(may, to) {
				forbidden = append(forbidden, file)
			}
		}
		face := inside + from + "/imports_face.go"
		plant(t, dir, face, module+"/"+room+"/leaf")
		forbidden = append(forbidden, face)
	}
	if len(forbidden) < len(walls) {
		t.Fatalf("%s forbids %d imports between %d packages: the table was not read right", room, len(forbidden), len(walls))
	}
	return forbidden
}

// wallsTable reads the table of the packages below a folder: package → which of them it may import.
func wallsTable(t *testing.T, below string) map[string][]string {
	t.Helper()
	design, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `" + below + "([a-z]+)` \\|.*\\| ([^|]*) \\|$")
	walls := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(design), -1) {
		walls[m[1]] = regexp.MustCompile(`[a-z]+`).FindAllString(m[2], -1)
	}
	folders, err := os.ReadDir("../" + below)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if _, ok := walls[f.Name()]; !ok && !strings.HasSuffix(f.Name(), "test") {
			t.Fatalf("docs/design.md has no row for %s%s (names of packages are letters alone)", below, f.Name())
		}
	}
	return walls
}

func TestAnUnlistedDependencyAndTestifyOutsideTestsAreRejected(t *testing.T) {
	dir := stubModule(t)
	plant(t, dir, "rpc/listed.go", "gorgonia.org/tensor")
	plant(t, dir, "rpc/unlisted.go", "github.com/pkg/errors")
	plant(t, dir, "store/testify.go", "github.com/stretchr/testify/require")
	plant(t, dir, "store/testify_test.go", "github.com/stretchr/testify/require")
	plant(t, dir, "internal/storetest/testify.go", "github.com/stretchr/testify/require")
	plant(t, dir, "internal/use/bottom.go", module+"/device/leaf")
	plant(t, dir, "internal/use/up.go", module+"/rpc/leaf")
	plant(t, dir, "internal/kerneltest/bottom.go", module+"/kernels/backend/leaf")
	plant(t, dir, "internal/kerneltest/up.go", module+"/rpc/leaf")
	plant(t, dir, "internal/storetest/down.go", module+"/store/leaf")
	plant(t, dir, "internal/storetest/up.go", module+"/rpc/leaf")
	plant(t, dir, "store/suite.go", module+"/internal/storetest")
	plant(t, dir, "store/suite_test.go", module+"/internal/storetest")
	plant(t, dir, "autodiff/suite.go", module+"/internal/kerneltest")
	plant(t, dir, "autodiff/suite_test.go", module+"/internal/kerneltest")
	plant(t, dir, "autodiff/gpu_test.go", module+"/kernels/gpu/leaf")
	plant(t, dir, "autodiff/internal/rows/up.go", module+"/autodiff/leaf")
	plant(t, dir, "autodiff/internal/expr/down.go", module+"/autodiff/internal/program")
	plant(t, dir, "autodiff/internal/expr/beside.go", module+"/autodiff/internal/rows")
	plant(t, dir, "autodiff/nn/down.go", module+"/autodiff/leaf")
	plant(t, dir, "autodiff/nn/beside.go", module+"/autodiff/gorgonia")
	plant(t, dir, "kernels/gpu/backend_test.go", module+"/kernels/backend/leaf")
	plant(t, dir, "kernels/cpu/gpu_test.go", module+"/kernels/gpu/leaf")
	plant(t, dir, "rpc/internal/codec/down.go", module+"/rpc/internal/wire")
	plant(t, dir, "rpc/internal/codec/beside.go", module+"/rpc/internal/membership")
	plant(t, dir, "rpc/internal/roster/beside.go", module+"/rpc/internal/refs")
	plant(t, dir, "collective/up.go", module+"/collective/tensors")
	plant(t, dir, "collective/tensors/down.go", module+"/collective/leaf")
	plant(t, dir, "collective/tensors/inside.go", module+"/collective/internal/leaf")
	plant(t, dir, "internal/rpctest/down.go", module+"/rpc/leaf")
	plant(t, dir, "internal/rpctest/up.go", module+"/optim/leaf")
	plant(t, dir, "optim/world.go", module+"/internal/rpctest")
	plant(t, dir, "optim/world_test.go", module+"/internal/rpctest")
	plant(t, dir, "device/cuda/interpreter/door.go", module+"/internal/ptx")
	plant(t, dir, "kernels/gpu/ptx.go", module+"/internal/ptx")
	plant(t, dir, "kernels/gpu/ptx_test.go", module+"/internal/ptx")
	plant(t, dir, "internal/ptx/driver.go", module+"/internal/ptx/compile")
	plant(t, dir, "internal/ptx/compile/down.go", module+"/internal/ptx/simt")
	plant(t, dir, "internal/ptx/simt/beside.go", module+"/internal/ptx/syntax")
	plant(t, dir, "elastic/down.go", module+"/elastic/internal/pipe/leaf")
	plant(t, dir, "elastic/up.go", module+"/elastic/agent/leaf")
	plant(t, dir, "elastic/agent/down.go", module+"/elastic/rdzv/leaf")
	plant(t, dir, "elastic/rdzv/up.go", module+"/elastic/leaf")
	plant(t, dir, "elastic/internal/process/beside.go", module+"/elastic/internal/output/leaf")
	plant(t, dir, "elastic/internal/process/beside_test.go", module+"/elastic/internal/output/leaf")
	want := []string{"autodiff/internal/expr/beside.go", "autodiff/internal/rows/up.go", "autodiff/nn/beside.go", "autodiff/suite.go", "collective/tensors/inside.go", "collective/up.go", "elastic/internal/process/beside.go", "elastic/rdzv/up.go", "elastic/up.go", "internal/kerneltest/up.go", "internal/ptx/simt/beside.go", "internal/rpctest/up.go", "internal/storetest/up.go", "internal/use/up.go", "kernels/cpu/gpu_test.go", "kernels/gpu/ptx.go", "optim/world.go", "rpc/internal/codec/beside.go", "rpc/internal/roster/beside.go", "rpc/unlisted.go", "store/suite.go", "store/testify.go"}
	compare(t, want, depguard(t, dir))
}

// designTable reads the house's table: room → what it may import.
func designTable(t *testing.T) map[string][]string {
	t.Helper()
	design, err := os.ReadFile("../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `([a-z/]+)/` \\|.*\\| ([^|]*) \\|$")
	room := regexp.MustCompile(`[a-z][a-z/]*`)
	table := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(design), -1) {
		if m[1] != "docs" {
			table[m[1]] = room.FindAllString(m[2], -1)
		}
	}
	if len(table) < 12 {
		t.Fatalf("docs/design.md lists %d rooms; expected the table of at least 12", len(table))
	}
	return table
}

// stubModule makes a module of the project's name and its lint configuration, with a package "leaf"
// in every room.
func stubModule(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	config, err := os.ReadFile("../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, ".golangci.yml", string(config))
	write(t, dir, "go.mod", "module "+module+"\n\ngo 1.26.0\n")
	for room := range designTable(t) {
		write(t, dir, room+"/leaf/leaf.go", "// Package leaf is empty.\npackage leaf\n")
	}
	return dir
}

func plant(t *testing.T, dir, file, imported string) {
	t.Helper()
	name := filepath.Base(filepath.Dir(file))
	write(t, dir, file, fmt.Sprintf("package %s\n\nimport _ %q\n", name, imported))
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	path := filepath.Join(dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// depguard runs the pinned linter with depguard alone, and returns the files with findings, sorted.
func depguard(t *testing.T, dir string) []string {
	t.Helper()
	modfile, err := filepath.Abs("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "-modfile="+modfile, "golangci-lint", "run", "--enable-only=depguard",
		"--max-issues-per-linter=0", "--max-same-issues=0", "--show-stats=false", "--issues-exit-code=0",
		"--output.json.path=stdout", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOLANGCI_LINT_CACHE="+t.TempDir())
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var report struct {
		Issues []struct {
			FromLinter string
			Pos        struct{ Filename string }
		}
	}
	if err := json.NewDecoder(strings.NewReader(string(out))).Decode(&report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var files []string
	for _, issue := range report.Issues {
		if issue.FromLinter == "depguard" {
			files = append(files, issue.Pos.Filename)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}

func compare(t *testing.T, want, got []string) {
	t.Helper()
	slices.Sort(want)
	for _, file := range want {
		if !slices.Contains(got, file) {
			t.Errorf("%s is forbidden, and the linter is silent", file)
		}
	}
	for _, file := range got {
		if !slices.Contains(want, file) {
			t.Errorf("%s is allowed, and the linter rejects it", file)
		}
	}
}
