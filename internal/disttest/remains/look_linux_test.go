package remains

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// markVariable is in the environment of every process of a job, with a value that no other job has.
const markVariable = "WEFT_TEST_MARK"

// scene is where a job takes place.
type scene struct {
	mark    string
	folder  string          // its working folder and that for temporary files
	shared  map[string]bool // what lay in /dev/shm before
	sockets map[string]bool // that its processes have had, by inode
}

func newScene(t *testing.T) *scene {
	s := &scene{mark: fmt.Sprintf("%s-%d", t.Name(), os.Getpid()), folder: t.TempDir(), shared: map[string]bool{}, sockets: map[string]bool{}}
	for _, name := range segments(t) {
		s.shared[name] = true
	}
	return s
}

// segments are what of shared memory has a name.
func segments(t *testing.T) (names []string) {
	entries, err := os.ReadDir("/dev/shm")
	if err != nil && !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// processes are those of the job that live.
func (s *scene) processes(t *testing.T) (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range all {
		b, err := os.ReadFile(path) // which is empty of a zombie, and an error of what has ended or is somebody else's
		if err != nil || !bytes.Contains(append([]byte{0}, b...), []byte("\x00"+markVariable+"="+s.mark+"\x00")) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(path, "/")[2])
		require.NoError(t, err)
		pids = append(pids, pid)
	}
	return pids
}

// note remembers the sockets that the job has now, and says how many those are.
func (s *scene) note(t *testing.T) int {
	for _, pid := range s.processes(t) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		for _, fd := range fds {
			to, _ := os.Readlink(fd) // it may be closed by now
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				s.sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	return len(s.sockets)
}

// remains is what is left of the job.
func (s *scene) remains(t *testing.T) (found []string) {
	for _, pid := range s.processes(t) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		found = append(found, fmt.Sprintf("process %d: %q", pid, line))
	}
	for table, column := range map[string]int{"tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9, "unix": 6} {
		b, err := os.ReadFile("/proc/net/" + table)
		if os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) > column && s.sockets[f[column]] {
				found = append(found, table+" socket: "+strings.TrimSpace(line))
			}
		}
	}
	require.NoError(t, filepath.WalkDir(s.folder, func(path string, _ os.DirEntry, err error) error {
		if err == nil && path != s.folder {
			found = append(found, "file: "+path)
		}
		return err
	}))
	for _, name := range segments(t) {
		if !s.shared[name] && strings.Contains(name, "weft") {
			found = append(found, "shared memory: "+name)
		}
	}
	return found
}
