package cu

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Header is a file that sources include.
type Header struct {
	Name string
	Text []byte
}

var include = regexp.MustCompile(`(?m)^#include "([^"]+)"$`)

// Headers are the files that a source includes, and that those include, as read finds them: each
// once, after those that it needs itself.
func Headers(source []byte, read func(name string) ([]byte, error)) (all []Header, err error) {
	for _, m := range include.FindAllSubmatch(source, -1) {
		name := string(m[1])
		known := func(h Header) bool { return h.Name == name }
		if slices.ContainsFunc(all, known) {
			continue
		}
		text, err := read(name)
		if err != nil {
			return nil, err
		}
		first, err := Headers(text, read)
		if err != nil {
			return nil, err
		}
		for _, h := range append(first, Header{name, text}) {
			if !slices.ContainsFunc(all, func(had Header) bool { return had.Name == h.Name }) {
				all = append(all, h)
			}
		}
	}
	return all, nil
}

// Modules lists the modules, each with its kernels. A name stands for two, which end in _f32 and
// _f64, unless a "!" follows.
func Modules() map[string][]string {
	return map[string][]string{
		"softmax": {"softmax", "softmax_grad", "softmax_strided", "softmax_grad_strided", "entropy", "entropy_mean", "entropy_grad"},
		"bf16": {"narrow!", "product_rr!", "product_rt!", "product_tr!", "product_tt!", "product_rr_thin!", "product_rt_thin!", "product_tr_thin!",
			"product_tt_thin!"},
		"attention":      {"attention", "attention_grad_q", "attention_grad_kv", "attention_more", "attention_grad_q_more", "attention_grad_kv_more"},
		"attention_b64":  attention("b_64!"),
		"attention_b96":  attention("b_96!"),
		"attention_b128": attention("b_128!"),
		"attention_b256": attention("b_256!"),
		"attention_h64":  {"attention_h_64!"},
		"attention_h128": {"attention_h_128!"},
		"conv":           {"im2col", "col2im", "conv_again", "conv_grad_again"},
		"fp8":            {"along_f!", "along_b!", "across_f!", "across_b!"},
		"fold":           {"fold", "fold_i32!", "fold_i64!", "fold_b!"},
		"gemm":           {"gemm_large", "gemm_small"},
		"pool":           {"maxpool", "maxpool_grad", "avgpool", "avgpool_grad"},
		"norm":           {"norm", "norm_grad", "norm_grad_params"},
		"norm_bf16":      {"norm_fb!", "norm_bb!", "norm_bf!", "norm_grad_fbf!", "norm_grad_fbb!", "norm_grad_ffb!", "norm_grad_params_b!"},
		"optim":          {"update", "rows_update", "rows_binary"},
		"rows":           {"gather", "scatter", "scatter_parts", "sort_keys!", "sort_step!", "sort_tile!", "zero!", "copy!"},
		"entropy_bf16":   {"entropy_b!", "entropy_mean_b!", "entropy_grad_bb!", "entropy_grad_bf!", "entropy_grad_fb!"},
		"random":         {"uniform", "bernoulli", "dropout"},
	}
}

// attention is the kernels of a module of attention, whose names end so.
func attention(end string) (all []string) {
	for _, of := range []string{"attention_", "attention_grad_q_", "attention_grad_kv_"} {
		all = append(all, of+end, of+"more_"+end)
	}
	return all
}

const (
	archOption  = "--gpu-architecture="
	defaultArch = "compute_75"
	hopperArch  = "compute_90a" // what runs on compute capability 9.0 and nowhere else
)

// Options are what NVRTC is told: the same for all sources, but for what a source asks for itself
// in lines that begin with "// nvrtc: ".
func Options(source []byte) []string {
	options, arch := asked(source)
	return append(options, archOption+arch)
}

// Archive is the name of the archive for the PTX of a source.
func Archive(source []byte) string {
	_, arch := asked(source)
	return arch + ".zip"
}

// Release is the version of NVRTC that compiles a source: the first that knows what drivers of CUDA
// 11.8 do not, for one that asks for that.
func Release(source []byte) string {
	if _, arch := asked(source); arch == hopperArch {
		return "12.9"
	}
	return "11.8"
}

var asks = regexp.MustCompile(`(?m)^// nvrtc: (\S+)$`)

// asked is what all sources are compiled with, and what this one asks for.
func asked(source []byte) (options []string, arch string) {
	options, arch = []string{"--std=c++17", "--device-as-default-execution-space"}, defaultArch
	for _, m := range asks.FindAllSubmatch(source, -1) {
		if a, is := strings.CutPrefix(string(m[1]), archOption); is {
			arch = a
		} else {
			options = append(options, string(m[1]))
		}
	}
	return options, arch
}

// Stamp is how the PTX of a source begins: it tells whether the source has changed since, also
// where there is no NVRTC.
func Stamp(name string, source []byte, headers []Header) string {
	h := sha256.New()
	var included []byte
	for _, x := range headers {
		included = append(included, x.Text...)
	}
	for _, part := range [][]byte{included, source, []byte(strings.Join(Options(source), " "))} {
		fmt.Fprintf(h, "%d:", len(part))
		h.Write(part)
	}
	return fmt.Sprintf("// Made of %s by kernels/gpu/internal/cu/build (NVRTC %s); do not edit. Sources: sha256 %x\n", name, Release(source), h.Sum(nil))
}
