//go:build netns && linux

package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weft-project/weft/internal/disttest/proctest"
)

// startHost starts a process in a namespace of its own and plugs it into the switch.
func startHost(t testing.TB, s *Switch, addr netip.Addr) *proctest.Proc {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: sudo make netns")
	}
	p := proctest.Start(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	})
	wire := make(chan *os.File, 1)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends with this goroutine, and the namespace's place in it
		f, err := enter(p.PID(), addr)
		wire <- f
		failed <- err
	}()
	f := <-wire
	require.NoError(t, <-failed)
	s.Plug(addr, f)
	return p
}

// enter moves this thread into a process's namespace and makes its interface; the file is the other
// end of it.
func enter(pid int, addr netip.Addr) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter the namespace of process %d: %w", pid, err)
	}
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	const name = "weft0"
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, fmt.Errorf("make an interface: %w", err)
	}
	return os.NewFile(uintptr(fd), name), errors.Join(configure(name, addr), up("lo"))
}

// configure gives an interface its address in a network of 256 hosts, its MTU, and sets it up.
func configure(name string, addr netip.Addr) error {
	mask := [4]byte{255, 255, 255, 0}
	ip := addr.As4()
	return errors.Join(
		set(name, "address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }),
		set(name, "netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask[:]) }),
		set(name, "MTU", unix.SIOCSIFMTU, func(r *unix.Ifreq) error { r.SetUint32(1500); return nil }),
		up(name),
	)
}

func up(name string) error {
	return set(name, "flags", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil })
}

func set(name, what string, request uint, fill func(*unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := fill(r); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, request, r); err != nil {
		return fmt.Errorf("set the %s of %s: %w", what, name, err)
	}
	return nil
}
