//go:build gpu && linux

package fakecuda

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// The variables of processes that are to meet what is planted, or to tell what they did with the
// fake.
const (
	PlantEnv = "WEFT_FAKE_PLANT" // what Plant takes
	SeenEnv  = "WEFT_FAKE_SEEN"  // a file, for Read
)

var definition = regexp.MustCompile(`(?m)^(?:int|size_t|const char \*) ?((?:cu|cublasLt)[A-Z]\w*)\(`)

// Calls are the functions of the driver and of cuBLASLt that the fake has, in the order of their
// numbers.
func Calls() (all []string) {
	files, _ := sources.ReadDir(".")
	for _, f := range files {
		text, _ := sources.ReadFile(f.Name())
		for _, found := range definition.FindAllSubmatch(text, -1) {
			all = append(all, string(found[1]))
		}
	}
	slices.Sort(all)
	return all
}

var (
	version   = regexp.MustCompile(`(_v\d+|WithFlags)$`)
	givesBack = regexp.MustCompile(`Destroy|Free|Unload|Release|CloseMemHandle|EndCapture`)
)

// Plain is the name under which errors tell of a call: without its version.
func Plain(call string) string { return version.ReplaceAllString(call, "") }

// GivesBack says whether a call is for giving something back: where it is refused, that is left.
func GivesBack(call string) bool { return givesBack.MatchString(call) }

// names is names.h. The files that define the calls have them renamed; plant.c exports them.
func names() string {
	all := Calls()
	return "#define CALLS(F) F(" + strings.Join(all, ") F(") + ")\n#ifndef PLANTS\n" +
		regexp.MustCompile(`\w+`).ReplaceAllString(strings.Join(all, "\n"), "#define $0 own_$0") + "\n#endif\n"
}

// kinds are what is counted of what must be given back, as in fake.h.
var kinds = [...]string{"allocations", "pinned pieces", "imports", "streams", "events", "modules", "graphs", "contexts", "handles", "descriptions", "layouts", "preferences"}

// Seen is what a process did with the fake, or several that shared the file.
type Seen struct {
	Hits  int            // how often they met what was planted
	Met   string         // the call in which they did last
	Calls map[string]int // that were made
	Left  []string       // what was not given back, as "2 events"
}

// Read reads what processes with SeenEnv=path did, also where they crashed.
func Read(path string) (s Seen, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	all := Calls()
	words := make([]int64, 2+len(kinds)+len(all))
	if err := binary.Read(bytes.NewReader(raw), binary.NativeEndian, words); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	s.Hits, s.Met, s.Calls = int(words[0]), met(words[1]), map[string]int{}
	for k, n := range words[2 : 2+len(kinds)] {
		s.left(k, n)
	}
	for k, n := range words[2+len(kinds):] {
		if n > 0 {
			s.Calls[all[k]] = int(n)
		}
	}
	return s, nil
}

func met(call int64) string {
	if call == 0 {
		return ""
	}
	return Calls()[call-1]
}

func (s *Seen) left(kind int, n int64) {
	if n != 0 {
		s.Left = append(s.Left, fmt.Sprintf("%d %s", n, kinds[kind]))
	}
}

// Run runs a program to its end, which its state tells of, and gives all that it prints. Where it
// hangs in what is planted it says so, and is asked where it is, by SIGQUIT.
func Run(cmd *exec.Cmd) (out string, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return "", err
	}
	in := bufio.NewScanner(r)
	for in.Buffer(nil, 1<<20); in.Scan(); {
		out += in.Text() + "\n"
		if strings.HasPrefix(in.Text(), "planted: ") && strings.HasSuffix(in.Text(), " hangs") {
			_ = cmd.Process.Signal(syscall.SIGQUIT)
		}
	}
	_ = cmd.Wait()
	return out, in.Err()
}

// Plant has the fake do something else in a call than what it is for. A plan is CALL:KIND for each
// call of a function, CALL@N:KIND for the N-th from now on, *@N:KIND for the N-th of all; "" is
// none. KIND is hang, crash, abort, exit (with 0, as if all were well), slow, memory (which runs
// out), the number of an error, or lostN, the number of an error that stays.
func (l *Library) Plant(plan string) {
	if l.plant(plan) != 0 {
		panic(plan + ": no such call of the fake driver, or no such kind")
	}
}

// Seen is what this process did with the fake.
func (l *Library) Seen() Seen {
	s := Seen{Hits: int(l.hits()), Met: met(l.met()), Calls: map[string]int{}}
	for k := range kinds {
		s.left(k, l.left(int32(k)))
	}
	for k, name := range Calls() {
		if n := l.calls(int32(k)); n > 0 {
			s.Calls[name] = int(n)
		}
	}
	return s
}
