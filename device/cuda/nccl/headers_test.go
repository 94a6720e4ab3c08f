//go:build cgo

package nccl

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	headers = flag.String("headers", "", "paths of nccl.h, separated by commas, that testdata/abi.txt is to be compared with (make nccl-abi)")
	write   = flag.Bool("write", false, "write testdata/abi.txt from the headers instead")
)

// What is asked of a header, where it has it.
var (
	fields = strings.Fields("size magic version blocking cgaClusterSize minCTAs maxCTAs netName splitShare trafficClass commName collnetEnable CTAPolicy shrinkShare nvlsCTAs")
	sizes  = strings.Fields("ncclConfig_t ncclUniqueId ncclResult_t ncclDataType_t ncclRedOp_t ncclScalarResidence_t")
	values = strings.Fields(`ncclSuccess ncclUnhandledCudaError ncclSystemError ncclInternalError ncclInvalidArgument ncclInvalidUsage ncclRemoteError ncclInProgress
		ncclTimeout ncclSum ncclProd ncclMax ncclMin ncclAvg ncclNumOps ncclInt8 ncclUint8 ncclInt32 ncclUint32 ncclInt64 ncclUint64 ncclFloat16 ncclFloat32 ncclFloat64
		ncclFloat8e4m3 ncclFloat8e5m2 ncclScalarHostImmediate NCCL_SPLIT_NOCOLOR NCCL_SHRINK_ABORT NCCL_CONFIG_UNDEF_INT`)
)

// facts asks a C compiler what a header says.
func facts(t *testing.T, path string) (version string, out map[string]string, order []string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(raw)
	dir := t.TempDir()
	for name, stub := range map[string]string{"cuda_runtime.h": "#include <stddef.h>\ntypedef struct CUstream_st *cudaStream_t; typedef struct CUevent_st *cudaEvent_t;\n", "cuda_fp16.h": ""} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(stub), 0o600))
	}
	has := func(name string) bool { return regexp.MustCompile(`\b` + name + `\b`).MatchString(text) }
	var c strings.Builder
	fmt.Fprintf(&c, "#include <%s>\n", filepath.Base(path))
	c.WriteString("#include <stdio.h>\nint main(void) {\n\tncclConfig_t config = NCCL_CONFIG_INITIALIZER;\n")
	ask := func(fact, value string) {
		fmt.Fprintf(&c, "\tprintf(\"%s %%lld\\n\", (long long)(%s));\n", fact, value)
	}
	c.WriteString("\tprintf(\"%d.%d.%d\\n\", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH);\n")
	for _, s := range sizes {
		order = append(order, "sizeof."+s)
		ask("sizeof."+s, "sizeof("+s+")")
	}
	for _, f := range fields {
		order = append(order, "ncclConfig_t."+f)
		if has(f) {
			ask("ncclConfig_t."+f, "offsetof(ncclConfig_t, "+f+")")
		}
	}
	order = append(order, "config.magic")
	ask("config.magic", "config.magic")
	for _, v := range values {
		order = append(order, v)
		if has(v) {
			ask(v, v)
		}
	}
	c.WriteString("}\n")
	source, program := filepath.Join(dir, "facts.c"), filepath.Join(dir, "facts")
	require.NoError(t, os.WriteFile(source, []byte(c.String()), 0o600))
	said, err := exec.CommandContext(t.Context(), compiler(), "-I"+dir, "-I"+filepath.Dir(path), "-o", program, source).CombinedOutput()
	require.NoError(t, err, string(said))
	said, err = exec.CommandContext(t.Context(), program).Output()
	require.NoError(t, err)
	out = map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(said)), "\n") {
		if fact, value, ok := strings.Cut(line, " "); ok {
			out[fact] = value
		} else {
			version = line
		}
	}
	for _, f := range functions {
		order = append(order, f.name)
		if takes, ok := signature(text, f.name); ok {
			out[f.name] = takes
		}
	}
	return version, out, order
}

func compiler() string {
	if cc := os.Getenv("CC"); cc != "" {
		return cc
	}
	return "gcc"
}

// signature is what a function takes, a letter for each parameter.
func signature(text, name string) (string, bool) {
	m := regexp.MustCompile(`(?s)\s` + name + `\(([^)]*)\);`).FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	takes := ""
	for _, p := range strings.Split(m[1], ",") {
		switch p = strings.TrimSpace(p); {
		case p == "" || p == "void":
		case regexp.MustCompile(`\*|ncclComm_t|cudaStream_t`).MatchString(p):
			takes += "p"
		case strings.Contains(p, "size_t"):
			takes += "z"
		case strings.Contains(p, "ncclUniqueId"):
			takes += "u"
		default:
			takes += "i"
		}
	}
	return "(" + takes + ")", true
}

// TestTheTableIsWhatHeadersSay reads NVIDIA's headers where some are named, and otherwise one of
// the test's own, which shows that a header that says something else is found out.
func TestTheTableIsWhatHeadersSay(t *testing.T) {
	if *headers == "" {
		a := committed(t)
		_, said, _ := facts(t, "testdata/strange.h")
		require.Equal(t, "56", said["sizeof.ncclConfig_t"])
		require.Equal(t, "(piip)", said["ncclCommSplit"])
		require.NotContains(t, said, "ncclCommShrink")
		require.NotEqual(t, a.facts["ncclCommSplit"][a.versions[0]], said["ncclCommSplit"])
		return
	}
	var versions []string
	all := map[string]map[string]string{}
	var order []string
	for _, path := range strings.Split(*headers, ",") {
		v, said, names := facts(t, path)
		versions, all[v], order = append(versions, v), said, names
	}
	if *write {
		require.NoError(t, os.WriteFile("testdata/abi.txt", []byte(columns(versions, order, all)), 0o600))
		return
	}
	a := committed(t)
	for _, v := range versions {
		require.Contains(t, a.versions, v, "the table has no such version: -write makes it anew of all headers")
		for _, fact := range order {
			require.Equal(t, a.facts[fact][v], all[v][fact], "%s in %s", fact, v)
		}
		fmt.Printf("nccl.h %s: %d facts are the table's\n", v, len(order))
	}
}

func columns(versions, order []string, all map[string]map[string]string) string {
	var b strings.Builder
	row := func(name string, cell func(v string) string) {
		fmt.Fprintf(&b, "%-32s", name)
		for _, v := range versions {
			fmt.Fprintf(&b, " %-11s", cell(v))
		}
		s := strings.TrimRight(b.String(), " ") + "\n"
		b.Reset()
		b.WriteString(s)
	}
	row("version", func(v string) string { return v })
	for _, fact := range order {
		row(fact, func(v string) string {
			if s, ok := all[v][fact]; ok {
				return s
			}
			return "-"
		})
	}
	return b.String()
}
