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

// lastItems is how many behaviours docs/pytorch-tests.md numbers, by prefix: of rpc_test.py, its
// faulty agent's twin, dist_autograd_test.py, dist_optimizer_test.py, test_store.py, of the agent's
// local_elastic_agent_test.py and api_test.py, of dynamic_rendezvous_test.py, and of process
// groups.
var lastItems = map[string]int{"": 109, "f": 7, "a": 73, "o": 4, "s": 30, "g": 40, "r": 52, "c": 45}

// suites are tests that run a suite of another folder, whose files name its cases in tables.
var suites = map[string]string{"internal/storetest": "store.TestConformance"}

// scenarios are tests whose cases are the text files of a folder.
var scenarios = map[string]string{"elastic/rdzv/testdata/scenarios": "elastic/rdzv.TestScenariosAreDecidedAsTheirLogsSay"}

func TestEveryTestThatTheTableOfPyTorchsTestsNamesExists(t *testing.T) {
	doc, err := os.ReadFile("../docs/pytorch-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	have := testsOf(t, "..")
	if len(have) < 500 {
		t.Fatalf("there are %d tests: they were not read right", len(have))
	}
	for _, wrong := range faultsOf(string(doc), lastItems, have) {
		t.Error(wrong)
	}
}

func TestATestThatDoesNotExistAndAMissingNumberAreFound(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "rpc/a_test.go", "package rpc\n\nfunc TestHere(t *testing.T) {}\n\nfunc (s suite) TestMethod() {}\n")
	write(t, dir, "internal/storetest/c.go", "package storetest\n\nvar cases = []any{\n\t\t{\"Here\", 1},\n}\n")
	write(t, dir, "elastic/rdzv/testdata/scenarios/two-come.txt", "0s join a")
	write(t, dir, "rpc/b.go", "package rpc\n\nfunc TestNotATest() {}\n")
	doc := "| 1, 3 | x | y | `rpc.TestHere`, `rpc.TestGone` |\n| 4 | x | y | `rpc.TestMethod`: `ctx.TestHere` |\n| 5 | x | y | |\n| f1, o2 | x | y | `rpc.TestNotATest`, `TestHere` |\n| s1 | x | y | `store.TestConformance/Here`, `store.TestConformance/Gone`, `rpc.TestHere/Here` |\n" +
		"| s2 | x | y | `elastic/rdzv.TestScenariosAreDecidedAsTheirLogsSay/two-come`, `elastic/rdzv.TestScenariosAreDecidedAsTheirLogsSay/two-go` |\n"
	got := faultsOf(doc, map[string]int{"": 5, "o": 2}, testsOf(t, dir))
	for _, want := range []string{"rpc.TestGone ", "rpc.TestMethod ", "ctx.TestHere ", "rpc.TestNotATest ", " TestHere ", "TestConformance/Gone ", "LogsSay/two-go ", "rpc.TestHere/Here ", "number 5 has nothing", "number 2 is", "number o1 is"} {
		if found := strings.Count(" "+strings.Join(got, "\n "), want); found != 1 {
			t.Errorf("%q was reported %d times: %q", want, found, got)
		}
	}
	if len(got) != 11 {
		t.Errorf("%d faults: %q", len(got), got)
	}
}

// testsOf gives the tests below a folder, as "folder.TestName".
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(path))
		suite := suites[filepath.ToSlash(folder)]
		if name, ok := strings.CutSuffix(filepath.Base(path), ".txt"); ok && err == nil && scenarios[filepath.ToSlash(folder)] != "" {
			tests[scenarios[filepath.ToSlash(folder)]+"/"+name] = true
			return nil
		}
		isTest := strings.HasSuffix(path, "_test.go")
		if err != nil || !isTest && (suite == "" || !strings.HasSuffix(path, ".go")) {
			return err
		}
		file, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !isTest {
			for _, name := range suiteCase.FindAllSubmatch(file, -1) {
				tests[suite+"/"+string(name[1])] = true
			}
			return nil
		}
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
	suiteCase = regexp.MustCompile(`(?m)^\t\t\{"([A-Z]\w*)", `)
	tableRow  = regexp.MustCompile(`(?m)^\| ([0-9a-z, ]+) \|(?:[^|]*\|){2} *([^|]*)\|$`)
	namedTest = regexp.MustCompile("`((?:[a-z/]+\\.)?Test[A-Z]\\w*(?:/[\\w-]*)?)`")
)

// faultsOf says what is wrong with a table: tests that are not there, rows that say nothing,
// numbers from 1 to the last of a prefix without a row.
func faultsOf(doc string, last map[string]int, tests map[string]bool) (faults []string) {
	seen := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(doc, -1) {
		for number := range strings.SplitSeq(row[1], ", ") {
			seen[number] = true
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
	for prefix, most := range last {
		for n := 1; n <= most; n++ {
			if number := prefix + strconv.Itoa(n); !seen[number] {
				faults = append(faults, fmt.Sprintf("number %s is in no row", number))
			}
		}
	}
	return faults
}
