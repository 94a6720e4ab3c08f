//go:build !linux

package etcdtest

import "os/exec"

func dieWithUs(*exec.Cmd) {}
func host() string        { return "127.0.0.1" }
func folder() string      { return "" }
