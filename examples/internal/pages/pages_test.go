package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

const (
	root      = "../../.."
	maxColumn = 100
	maxReadme = 150 // lines
)

// pages are the files of Markdown at the root and below docs and bench, by their paths from the
// root.
func pages(t *testing.T) map[string]string {
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "bench/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			rel, err := filepath.Rel(root, name)
			require.NoError(t, err)
			all[rel] = string(text)
		}
	}
	require.Greater(t, len(all), 12)
	return all
}

// blocks are a page's samples in a language; what is left of it is prose.
func blocks(page, language string) (samples []string, prose string) {
	fenced := regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	for _, b := range fenced.FindAllStringSubmatch(page, -1) {
		if b[1] == language {
			samples = append(samples, b[2])
		}
	}
	return samples, fenced.ReplaceAllString(page, "")
}

// anchor is what GitHub calls a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func anchors(page string) (all []string) {
	_, prose := blocks(page, "")
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(prose, -1) {
		all = append(all, anchor(h[1]))
	}
	return all
}

// dead are the links of a page that lead nowhere in this repository.
func dead(name string, all map[string]string) (links []string) {
	_, prose := blocks(all[name], "")
	for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose, -1) {
		path, fragment, _ := strings.Cut(m[1], "#")
		if strings.Contains(path, "://") {
			continue // other sites are not asked
		}
		at := name
		if path != "" {
			at = filepath.Join(filepath.Dir(name), path)
		}
		_, err := os.Stat(filepath.Join(root, at))
		if err != nil || fragment != "" && !slices.Contains(anchors(all[at]), fragment) {
			links = append(links, m[1])
		}
	}
	return links
}

func TestEveryLinkLeadsSomewhere(t *testing.T) {
	all := pages(t)
	for name := range all {
		require.Empty(t, dead(name, all), name)
	}
	all["docs/store.md"] = "# A b-c, d!\n[1](no.md) [2](design.md) [3](#a-b-c-d) [4](#a) [5](../README.md#test) [6](../README.md#no) [7](https://no.example/)"
	require.Equal(t, []string{"no.md", "#a", "../README.md#no"}, dead("docs/store.md", all))
}

// plain is code without its indentation, so that a sample may stand deeper in a file.
func plain(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestEverySampleInGoStandsInAProgramOrATestThatRuns(t *testing.T) {
	var sources []string
	for _, dir := range []string{"examples", "internal"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".go") && (dir == "examples" || strings.HasSuffix(path, "_test.go")) {
				var text []byte
				text, err = os.ReadFile(path)
				sources = append(sources, plain(string(text)))
			}
			return err
		}))
	}
	runs := func(sample string) bool {
		return slices.ContainsFunc(sources, func(s string) bool { return strings.Contains(s, plain(sample)) })
	}
	found := 0
	for name, page := range pages(t) {
		samples, _ := blocks(page, "go")
		for _, sample := range samples {
			require.True(t, runs(sample), "%s: neither an example nor a test below internal has this:\n%s", name, sample)
			found++
		}
	}
	require.Greater(t, found, 8)
	require.False(t, runs("f("+"1)\nf(2)\nf(3)\n"))
}

// wide are the lines of a page that are longer than a screen: tables, samples and headings may be.
func wide(page string) (lines []string) {
	_, prose := blocks(page, "")
	for line := range strings.Lines(prose) {
		line = strings.TrimRight(line, "\n")
		if utf8.RuneCountInString(line) > maxColumn && strings.Contains(line, " ") && !strings.ContainsAny(line[:1], "|!#") {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestNoLineIsTooLong(t *testing.T) {
	for name, page := range pages(t) {
		require.Empty(t, wide(page), name)
	}
	fits := strings.Repeat("é ", maxColumn/2-1) + "éé"
	long := fits + "é"
	require.Equal(t, []string{long}, wide("| "+long+"\n"+long+"\n```\n"+long+"\n```\n"+fits+"\n"))
}

func TestTheREADMEIsShort(t *testing.T) {
	require.LessOrEqual(t, strings.Count(pages(t)["README.md"], "\n"), maxReadme)
}

// declared are the functions of a file: F, or T.F for a method.
func declared(t *testing.T, file string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			name := fn.Name.Name
			if fn.Recv != nil {
				of := fn.Recv.List[0].Type
				if p, ok := of.(*ast.StarExpr); ok {
					of = p.X
				}
				switch x := of.(type) {
				case *ast.IndexExpr:
					of = x.X
				case *ast.IndexListExpr:
					of = x.X
				}
				name = of.(*ast.Ident).Name + "." + name
			}
			names = append(names, name)
		}
	}
	return names
}

func TestTheWalksNameFunctionsThatAreThere(t *testing.T) {
	const most = 15 // steps
	walks := strings.Split(pages(t)["docs/walks.md"], "\n## ")[1:]
	require.Len(t, walks, 5)
	for _, walk := range walks {
		steps := regexp.MustCompile("`([a-z_/]+\\.go)` `([A-Za-z.]+)`").FindAllStringSubmatch(walk, -1)
		require.Greater(t, len(steps), 5)
		require.LessOrEqual(t, len(steps), most)
		for _, step := range steps {
			require.Contains(t, declared(t, filepath.Join(root, step[1])), step[2], step[0])
		}
	}
}
