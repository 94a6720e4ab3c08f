package tools

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestEveryClaimOfTheThreatModelNamesATestThatExists(t *testing.T) {
	doc, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	claims, faults := unproven(string(doc), testsOf(t, ".."))
	if claims < 20 {
		t.Errorf("docs/security.md makes %d claims; expected its table of at least 20", claims)
	}
	for _, wrong := range faults {
		t.Error(wrong)
	}
}

func TestAClaimWithoutATestIsFound(t *testing.T) {
	have := map[string]bool{"store.TestHere": true}
	doc := "| What holds | Its tests |\n| --- | --- |\n| one | `store.TestHere` |\n| two | `store.TestGone` |\n| three | see above |\n| four | `store.TestHere`, `TestHere` |\n"
	claims, faults := unproven(doc, have)
	if claims != 4 || len(faults) != 3 {
		t.Errorf("%d claims, and %q", claims, faults)
	}
}

// claimRow is a row of the threat model's table: what holds, and the tests that show it.
var claimRow = regexp.MustCompile(`(?m)^\| ([^|]*[^|\s-][^|]*) \| ([^|]*) \|$`)

// unproven counts the claims of a threat model, and says which name no test, or one that does not
// exist.
func unproven(doc string, tests map[string]bool) (claims int, faults []string) {
	for _, row := range claimRow.FindAllStringSubmatch(doc, -1) {
		if strings.HasPrefix(row[2], "Its tests") {
			continue
		}
		claims++
		named := namedTest.FindAllStringSubmatch(row[2], -1)
		if len(named) == 0 {
			faults = append(faults, fmt.Sprintf("%q names no test", row[1]))
		}
		for _, name := range named {
			if !tests[name[1]] {
				faults = append(faults, fmt.Sprintf("%s of %q does not exist", name[1], row[1]))
			}
		}
	}
	return claims, faults
}
