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
	sockets map[string]bool // that its processes have had, by inode
	shared  map[string]bool // files of /dev/shm that they have had, open or mapped
}

func newScene(t *testing.T) *scene {
	return &scene{mark: fmt.Sprintf("%s-%d", t.Name(), os.Getpid()), folder: t.TempDir(), sockets: map[string]bool{}, shared: map[string]bool{}}
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

// note remembers the sockets and the shared memory that the job has now, and says how many sockets
// it has had.
func (s *scene) note(t *testing.T) int {
	for _, pid := range s.processes(t) {
		fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		require.NoError(t, err)
		for _, fd := range fds {
			to, _ := os.Readlink(fd) // it may be closed by now
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				s.sockets[strings.TrimSuffix(inode, "]")] = true
			}
			if strings.HasPrefix(to, "/dev/shm/") {
				s.shared[to] = true
			}
		}
		maps, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)) // it may have ended
		for line := range strings.Lines(string(maps)) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), " /dev/shm/"); ok {
				s.shared["/dev/shm/"+name] = true
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
	for path := range s.shared {
		if _, err := os.Lstat(path); err == nil {
			found = append(found, "shared memory: "+path)
		}
	}
	return found
}
