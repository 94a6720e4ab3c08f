package nccl

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// table is what NCCL's headers say, by version and fact; a fact that a version lacks is not there.
// testdata/abi.txt has it: make nccl-abi compares it with headers.
type table struct {
	versions []string
	facts    map[string]map[string]string
}

func committed(t *testing.T) table {
	t.Helper()
	raw, err := os.ReadFile("testdata/abi.txt")
	require.NoError(t, err)
	a := table{facts: map[string]map[string]string{}}
	for line := range bytes.Lines(raw) {
		f := strings.Fields(string(line))
		if a.versions == nil {
			a.versions = f[1:]
			continue
		}
		require.Len(t, f, 1+len(a.versions), f)
		a.facts[f[0]] = map[string]string{}
		for i, v := range a.versions {
			if f[1+i] != "-" {
				a.facts[f[0]][v] = f[1+i]
			}
		}
	}
	require.Greater(t, len(a.versions), 10)
	return a
}

// number is NCCL's for a version as people write it.
func number(t *testing.T, version string) int {
	t.Helper()
	n := 0
	for _, part := range strings.Split(version, ".") {
		k, err := strconv.Atoi(part)
		require.NoError(t, err)
		n = n*100 + k
	}
	return n
}

// holds compares a value of ours with that of all versions from one on, which must have it.
func (a table) holds(t *testing.T, fact string, since int, ours string) {
	t.Helper()
	require.NotEmpty(t, a.facts[fact], "the table has no %s", fact)
	for _, v := range a.versions {
		theirs, has := a.facts[fact][v]
		if n := number(t, v); since > 0 && n/100 < since/100 {
			require.False(t, has, "%s has %s", v, fact)
			continue
		}
		require.Equal(t, ours, theirs, "%s in %s", fact, v)
	}
}

func TestTheLayoutOfAConfigurationIsThatOfAllHeadersThatHaveItsFields(t *testing.T) {
	a := committed(t)
	var l layout
	for _, f := range []struct {
		name  string
		since int
		at    uintptr
	}{
		{"size", 0, unsafe.Offsetof(l.size)}, {"magic", 0, unsafe.Offsetof(l.magic)}, {"version", 0, unsafe.Offsetof(l.version)},
		{"blocking", 0, unsafe.Offsetof(l.blocking)}, {"cgaClusterSize", 0, unsafe.Offsetof(l.clusterSize)},
		{"minCTAs", 0, unsafe.Offsetof(l.minCTAs)}, {"maxCTAs", 0, unsafe.Offsetof(l.maxCTAs)}, {"netName", 0, unsafe.Offsetof(l.net)},
		{"splitShare", 0, unsafe.Offsetof(l.splitShare)}, {"trafficClass", 22600, unsafe.Offsetof(l.trafficClass)},
		{"commName", 22700, unsafe.Offsetof(l.name)}, {"collnetEnable", 22700, unsafe.Offsetof(l.collnet)},
		{"CTAPolicy", 22700, unsafe.Offsetof(l.ctaPolicy)}, {"shrinkShare", 22700, unsafe.Offsetof(l.shrinkShare)},
		{"nvlsCTAs", 22700, unsafe.Offsetof(l.nvlsCTAs)},
	} {
		a.holds(t, "ncclConfig_t."+f.name, f.since, fmt.Sprint(f.at))
	}
	a.holds(t, "config.magic", 0, fmt.Sprint(uint32(magic)))
	a.holds(t, "NCCL_CONFIG_UNDEF_INT", 0, fmt.Sprint(undefined))
	a.holds(t, "sizeof.ncclUniqueId", 0, fmt.Sprint(len(ID{})))
	for _, v := range a.versions {
		size, err := strconv.Atoi(a.facts["sizeof.ncclConfig_t"][v])
		require.NoError(t, err)
		want := size218
		if number(t, v) >= 22700 {
			want = size227
			require.GreaterOrEqual(t, size, want, v)
		} else {
			require.Equal(t, want, size, v)
		}
	}
	require.Equal(t, uintptr(size227), unsafe.Sizeof(l))
}

func TestTheNumbersAreThoseOfAllHeaders(t *testing.T) {
	a := committed(t)
	for name, n := range map[string]int{
		"ncclSuccess": success, "ncclUnhandledCudaError": 1, "ncclSystemError": 2, "ncclInternalError": 3, "ncclInvalidArgument": 4, "ncclInvalidUsage": 5,
		"ncclRemoteError": 6, "ncclInProgress": inProgress,
		"ncclSum": int(Sum), "ncclProd": int(Prod), "ncclMax": int(Max), "ncclMin": int(Min), "ncclAvg": int(Avg), "ncclNumOps": int(ownOps),
		"ncclInt8": int(Int8), "ncclUint8": int(Uint8), "ncclInt32": int(Int32), "ncclUint32": int(Uint32), "ncclInt64": int(Int64), "ncclUint64": int(Uint64),
		"ncclFloat16": int(Float16), "ncclFloat32": int(Float32), "ncclFloat64": int(Float64), "ncclScalarHostImmediate": 1,
		"sizeof.ncclResult_t": 4, "sizeof.ncclDataType_t": 4, "sizeof.ncclRedOp_t": 4, "sizeof.ncclScalarResidence_t": 4, "NCCL_SPLIT_NOCOLOR": NoColor,
	} {
		a.holds(t, name, 0, fmt.Sprint(n))
	}
	a.holds(t, "ncclFloat8e4m3", 22400, fmt.Sprint(int(Float8E4M3)))
	a.holds(t, "ncclFloat8e5m2", 22400, fmt.Sprint(int(Float8E5M2)))
	a.holds(t, "NCCL_SHRINK_ABORT", 22700, "1")
	a.holds(t, "ncclTimeout", 23000, fmt.Sprint(timeout))
}

func TestEachFunctionTakesWhatAllHeadersThatHaveItSay(t *testing.T) {
	a := committed(t)
	for _, f := range functions {
		takes := "(" + f.takes + ")"
		a.holds(t, f.name, f.since, takes)
	}
}
