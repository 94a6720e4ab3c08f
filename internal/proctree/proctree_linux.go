package proctree

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Adopt makes this process the parent of every process below it that loses its own, and says
// whether it is.
func Adopt() bool { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == nil }

// Below is the processes below one, but for those in spared and what is below them.
func Below(of int, spared map[int]bool) (all []int) {
	folder, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(-1) // what can be read
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if parent := parentOf(name); parent > 0 && !spared[pid] {
			children[parent] = append(children[parent], pid)
		}
	}
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		all, next = append(all, pid), append(next[1:], children[pid]...)
	}
	return all
}

// parentOf is the parent of a process, 0 if there is none: the fourth field of its stat, whose
// second one is a name in parentheses.
func parentOf(pid string) int {
	b, _ := os.ReadFile("/proc/" + pid + "/stat")
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, _ := strconv.Atoi(fields[1])
	return parent
}
