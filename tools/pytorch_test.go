package tools

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// lastItem is how many behaviours of PyTorch's rpc_test.py docs/pytorch-tests.md numbers.
const lastItem = 109

func TestEveryTestThatTheTableOfPyTorchsTestsNamesExists(t *testing.T) {
	doc, err := os.ReadFile("../docs/pytorch-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	have := testsOf(t, "..")
	if len(have) < 500 {
		t.Fatalf("there are %d tests: they were not read right", len(have))
	}
	for _, wrong := range faultsOf(string(doc), lastItem, have) {
		t.Error(wrong)
	}
}

func TestATestThatDoesNotExistAndAMissingNumberAreFound(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rpc/a_test.go", "package rpc\n\nfunc TestHere(t *testing.T) {}\n\nfunc (s suite) TestMethod() {}\n")
	write(t, dir, "rpc/b.go", "package rpc\n\nfunc TestNotATest() {}\n")
	doc := "| 1, 3 | x | y | `rpc.TestHere`, `rpc.TestGone` |\n| 4 | x | y | `rpc.TestMethod`: `ctx.TestHere` |\n| 5 | x | y | |\n| f1, o2 | x | y | `rpc.TestNotATest`, `TestHere` |\n"
	got := faultsOf(doc, 5, testsOf(t, dir))
	for _, want := range []string{"rpc.TestGone ", "rpc.TestMethod ", "ctx.TestHere ", "rpc.TestNotATest ", " TestHere ", "number 5 has nothing", "number 2 is"} {
		if found := strings.Count(" "+strings.Join(got, "\n "), want); found != 1 {
			t.Errorf("%q was reported %d times: %q", want, found, got)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d faults: %q", len(got), got)
	}
}

// testsOf gives the tests below a folder, as "folder.TestName".
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		for _, name := range testFunc.FindAllSubmatch(file, -1) {
			tests[filepath.ToSlash(folder)+"."+string(name[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}

var (
	testFunc  = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	tableRow  = regexp.MustCompile(`(?m)^\| ([0-9a-z, ]+) \|(?:[^|]*\|){2} *([^|]*)\|$`)
	namedTest = regexp.MustCompile("`((?:[a-z/]+\\.)?Test[A-Z]\\w*)`")
)

// faultsOf says what is wrong with a table: tests that are not there, rows that say nothing, numbers from 1 to last without a row.
func faultsOf(doc string, last int, tests map[string]bool) (faults []string) {
	seen := map[int]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(doc, -1) {
		for number := range strings.SplitSeq(row[1], ", ") {
			if n, err := strconv.Atoi(number); err == nil {
				seen[n] = true
			}
			if row[2] == "" {
				faults = append(faults, fmt.Sprintf("number %s has nothing of ours", number))
			}
		}
		for _, name := range namedTest.FindAllStringSubmatch(row[2], -1) {
			if !tests[name[1]] {
				faults = append(faults, fmt.Sprintf("%s of number %s does not exist", name[1], row[1]))
			}
		}
	}
	for n := 1; n <= last; n++ {
		if !seen[n] {
			faults = append(faults, fmt.Sprintf("number %d is in no row", n))
		}
	}
	return faults
}
