package site

import (
	"runtime"
	"slices"
	"strings"
)

// ours are the rooms, with their packages, that a user's mistake is never in.
var ours = [...]string{"autodiff", "collective", "ctx", "device", "internal/callsite", "kernels", "optim", "rpc"}

const module = "github.com/weft-project/weft/"

// Outside is the place of the nearest call that is a user's, of a stack as runtime.Callers gives
// it; zero without one.
func Outside(stack []uintptr) (file string, line int) {
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if f.Function != "" && !inside(f.Function, f.File) {
			return f.File, f.Line
		}
		if !more {
			return "", 0
		}
	}
}

func inside(function, file string) bool {
	if rest, ok := strings.CutPrefix(function, module); ok {
		of := func(room string) bool { return strings.HasPrefix(rest, room+".") || strings.HasPrefix(rest, room+"/") }
		return slices.ContainsFunc(ours[:], of) && !strings.HasSuffix(file, "_test.go")
	}
	return slices.ContainsFunc([]string{"reflect.", "runtime.", "sync."}, func(p string) bool { return strings.HasPrefix(function, p) })
}
