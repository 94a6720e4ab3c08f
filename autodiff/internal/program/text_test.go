package program

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weft-project/weft/device"
	"github.com/weft-project/weft/kernels"
)

// parseUnit reads what Unit.String prints, and numbers values as it does. Types of what
// instructions make may be left out. A given value of bfloat16, and "results %1 as bfloat16", are
// the unit's NarrowGiven and NarrowResults; "%1 as float32" is one of its WideResults.
func parseUnit(t testing.TB, text string) *Unit {
	u := &Unit{}
	names := map[string]Value{}
	value := func(s string) Value {
		v, ok := names[s]
		require.True(t, ok, "%s is not there yet", s)
		return v
	}
	upTo := func(name string) { // values that nobody makes stand where numbers are left out
		n, err := strconv.Atoi(name[1:])
		require.NoError(t, err)
		for len(u.Types) < n {
			u.Fresh(kernels.Type{})
		}
	}
	for n, line := range strings.Split(strings.TrimSpace(text), "\n") {
		switch first, rest, _ := strings.Cut(line, " "); {
		case n == 0:
			u.Name = line
		case first == "given":
			for _, m := range regexp.MustCompile(`(%\d+) (\w+\([^)]*\))`).FindAllStringSubmatch(rest, -1) {
				upTo(m[1])
				u.NarrowGiven = append(u.NarrowGiven, strings.HasPrefix(m[2], "bfloat16"))
				names[m[1]] = u.Input(parseType(t, strings.Replace(m[2], "bfloat16", "float32", 1)))
			}
		case first == "results":
			for _, s := range strings.Split(rest, ", ") {
				s, as, _ := strings.Cut(s, " as ")
				u.Results, u.NarrowResults = append(u.Results, value(s)), append(u.NarrowResults, as == "bfloat16")
				u.WideResults = append(u.WideResults, as == "float32")
			}
		default:
			left, right, ok := strings.Cut(line, " = ")
			require.True(t, ok, line)
			m := regexp.MustCompile(`^(.*?)((?: %\d+)*)$`).FindStringSubmatch(right)
			var in []Value
			for _, s := range strings.Fields(m[2]) {
				in = append(in, value(s))
			}
			made := regexp.MustCompile(`%\d+`).FindAllString(left, -1)
			upTo(made[0])
			out, err := u.Apply(parseInstr(t, m[1]), in...)
			require.NoError(t, err, line)
			for k, s := range made {
				names[s] = out[k]
			}
		}
	}
	require.NoError(t, u.Check())
	return u
}

func parseType(t testing.TB, s string) kernels.Type {
	name, rest, ok := strings.Cut(s, "(")
	require.True(t, ok, s)
	for d := device.Float32; d.Valid(); d++ {
		if d.String() == name {
			return kernels.Type{Dtype: d, Shape: append(device.Shape{}, parseInts(t, rest)...)}
		}
	}
	require.FailNow(t, "no type", s)
	return kernels.Type{}
}

func parseInts(t testing.TB, s string) []int {
	ints := []int{}
	for _, d := range regexp.MustCompile(`-?\d+`).FindAllString(s, -1) {
		n, err := strconv.Atoi(d)
		require.NoError(t, err)
		ints = append(ints, n)
	}
	return ints
}

// parseInstr reads the instructions that tests write.
func parseInstr(t testing.TB, s string) kernels.Instr {
	at := strings.IndexAny(s+"(", "([")
	name, args := s[:at], s[at:]
	n := parseInts(t, args)
	yes := strings.Contains(args, "true")
	for f := kernels.UnaryFn(0); !strings.HasPrefix(f.String(), "UnaryFn"); f++ {
		if f.String() == name {
			c, _ := strconv.ParseFloat(strings.Trim(args, "()"), 64)
			return kernels.Unary{Fn: f, C: c}
		}
	}
	for f := kernels.BinaryFn(0); !strings.HasPrefix(f.String(), "BinaryFn"); f++ {
		if f.String() == name {
			return kernels.Binary{Fn: f}
		}
	}
	for f := kernels.Sum; f <= kernels.Max; f++ {
		if f.String() == name {
			if strings.Contains(args, "all") {
				n = nil
			}
			return kernels.Reduce{Fn: f, Axes: n, Keep: yes}
		}
	}
	switch name {
	case "MatMul":
		return kernels.MatMul{TransA: strings.Contains(args, "transA=true"), TransB: strings.Contains(args, "transB=true")}
	case "BroadcastTo":
		return kernels.BroadcastTo{Shape: n}
	case "Reshape":
		return kernels.Reshape{Shape: n}
	case "Transpose":
		return kernels.Transpose{Perm: n}
	case "Slice":
		return kernels.Slice{Axis: n[0], Start: n[1], Stop: n[2]}
	case "Pad":
		return kernels.Pad{Axis: n[0], Before: n[1], After: n[2]}
	case "Concat":
		return kernels.Concat{Axis: n[0]}
	case "Cast":
		return kernels.Cast{To: parseType(t, strings.Trim(args, "()")+"(").Dtype}
	case "Fill":
		typ, c, ok := strings.Cut(args[1:len(args)-1], "), ")
		require.True(t, ok, s)
		v, err := strconv.ParseFloat(c, 64)
		require.NoError(t, err)
		return kernels.Fill{Type: parseType(t, typ), C: v}
	case "Softmax":
		return kernels.Softmax{Axis: n[0], Log: yes}
	case "SoftmaxGrad":
		return kernels.SoftmaxGrad{Axis: n[0], Log: yes}
	case "CrossEntropy":
		return kernels.CrossEntropy{}
	case "CrossEntropyGrad":
		return kernels.CrossEntropyGrad{}
	case "Normalize":
		return kernels.Normalize{Eps: 1e-5}
	case "NormalizeGrad":
		return kernels.NormalizeGrad{Eps: 1e-5}
	case "Attention":
		return kernels.Attention{Causal: yes}
	case "AttentionGrad":
		return kernels.AttentionGrad{Causal: strings.Contains(args, "causal=true"), Joined: strings.Contains(args, "joined=true")}
	case "Gather":
		return kernels.Gather{}
	case "MaxGrad":
		if strings.Contains(args, "all") {
			n = nil
		}
		return kernels.MaxGrad{Axes: n, Keep: yes}
	}
	require.FailNow(t, "no instruction", fmt.Sprintf("%q", s))
	return nil
}
