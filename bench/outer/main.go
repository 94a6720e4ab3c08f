package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", "docs", "folder for the two plots")
	flag.Parse()
	if err := run(os.Stdout, *out); err != nil {
		fmt.Fprintln(os.Stderr, "outer:", err)
		os.Exit(1)
	}
}

// arrangement is how workers are put into groups.
type arrangement struct {
	name   string
	groups func(workers int) []int
}

// arrangements are those that are compared.
func arrangements() []arrangement {
	of := func(levels int) func(int) []int {
		return func(workers int) (sizes []int) {
			for rest := workers; levels > len(sizes); {
				n := ceilRoot(rest, levels-len(sizes))
				sizes, rest = append(sizes, n), (rest+n-1)/n
			}
			return sizes
		}
	}
	return []arrangement{{"one group", of(1)}, {"groups of groups", of(2)}, {"three levels", of(3)}}
}

// ceilRoot is the least n whose k-th power is so much or more.
func ceilRoot(x, k int) int {
	for n := 1; ; n++ {
		p := 1
		for range k {
			p *= n
		}
		if p >= x {
			return n
		}
	}
}

// run simulates, prints the table, and draws.
func run(stdout io.Writer, folder string) error {
	fmt.Fprint(stdout, table())
	if err := drawWorkers(filepath.Join(folder, "outer-workers.svg")); err != nil {
		return err
	}
	return drawLosses(filepath.Join(folder, "outer-losses.svg"))
}

// table is that of docs/internet.md.
func table() string {
	text := "| workers | arrangement | links of a worker | sent by a worker | outer step | of it inner steps " +
		"| tries of an exchange | workers left out | what fails first |\n"
	text += "| --: | --- | --: | --: | --: | --: | --: | --: | --- |\n"
	for _, workers := range []int{100, 1000, 10_000} {
		for _, a := range arrangements() {
			groups := a.groups(workers)
			o := simulate(usual(workers, groups...))
			text += fmt.Sprintf("| %d | %s, %s | %d | %.0f MB | %.0f s | %.0f %% | %.2f | %.1f %% | %s |\n",
				workers, a.name, sizes(groups), o.Links, o.Sent/1e6, o.Step, 100*o.Compute/o.Step, o.Tries, 100*o.LeftOut, o.FailsBy)
		}
	}
	return text
}

func sizes(groups []int) (text string) {
	for i, n := range groups {
		if i > 0 {
			text += " × "
		}
		text += fmt.Sprint(n)
	}
	return text
}
