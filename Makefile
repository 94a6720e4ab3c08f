SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := build
.PHONY: build run elastic test lint bench peers floods netns interop fuzz soak cover gpu gpu-test gpu-faults gpu-headers gpu-descriptors nccl-abi nccl-libraries gpu-bundle gpu-check

FUZZTIME ?= 10m
FUZZIN ?= .
SOAKTIME ?= 4h
# The race detector needs cgo and a C compiler; the rest of the project needs neither. It does not look at the arithmetic of Go's cryptography, nor at the
# compiler of the interpreter of GPUs: they start no goroutine and share nothing, and take a quarter of the time of tests that connect workers or have a GPU.
RACE := $(shell [ "$$(go env CGO_ENABLED)" = 1 ] && command -v "$$(go env CC)" >/dev/null && echo -race)
PURE := crypto/internal/fips140/... github.com/weft-project/weft/internal/ptx/compile github.com/weft-project/weft/internal/ptx/syntax
RACE += $(if $(RACE),$(foreach pure,$(PURE),-gcflags=$(pure)=-race=false))
# Go's vectors, where the toolchain has them: several times faster loops. GOEXPERIMENT= make … goes without.
GOEXPERIMENT ?= $(shell [ "$$(go env GOARCH)" = amd64 ] && GOEXPERIMENT=simd go list simd/archsimd >/dev/null 2>&1 && echo simd)
export GOEXPERIMENT
# The race detector lets every process sleep for a second before it ends, and the tests of each package are one.
export GORACE ?= atexit_sleep_ms=0
TOOL := go tool -modfile=tools/go.mod
# Go's tools and most tests spend a seventh of their time in the collector, which has no need to be as frugal as a program's.
test lint fuzz gpu gpu-test: export GOGC ?= 400

build:
	go build ./...
	go build -o bin/ ./cmd/weft ./examples/digits ./examples/replicas ./examples/shards ./examples/simple ./examples/parameterserver ./examples/pipeline ./examples/elastic ./examples/outer

# Train the digits model on two worker processes of this machine; the plot goes to digits-loss.png.
run:
	go build -o bin/ ./cmd/weft ./examples/digits
	bin/weft run --nproc-per-node 2 bin/digits

# Train on three agents of this machine, of which some are killed and others come; the plot goes to elastic-loss.png.
elastic:
	go build -o bin/ ./examples/elastic
	bin/elastic $(ELASTIC)

# Where nothing starts a goroutine the race detector finds nothing, and makes tests several times as slow. So it goes over the packages whose code starts
# some, there or below their internal/, over the tests of all together (internal/disttest), and in the other packages over the files of tests that start
# some, which run once, too. Examples and benchmarks are programs made of those packages. make soak has it everywhere. go vet has looked at everything before;
# go test would look again, with the detector and without, at all that a test is made of.
GOROUTINES := '^\s*go (func\b|[A-Za-z_.]+\()|\.Go\(|AfterFunc\('
LIBRARIES := --exclude-dir=bench --exclude-dir=examples --exclude-dir=tools
test:
	[ -n "$(strip $(RACE))" ] || echo "make test: no C compiler (go env CC, CGO_ENABLED=1), so testing without the race detector" >&2
	go vet ./...
	folders() { xargs -r -n 1 dirname | sort -u; }
	names() { xargs -r sed -nE 's/^func (Test[A-Za-z0-9_]+)\(.*/\1/p' | paste -sd '|' -; }
	of() { grep -rlE --include='*_test.go' "$$1" $$raced || true; }
	all=$$(go list -f '.{{slice .Dir (len .Module.Dir)}}' ./... | sort)
	raced=$$({ grep -rlE --include='*.go' --exclude='*_test.go' $(LIBRARIES) $(GOROUTINES) . | folders | sed 'p; s,/internal/.*,,'; find ./internal/disttest -type d; } | sort -u | comm -12 - <(echo "$$all"))
	plain=$$(comm -23 <(echo "$$all") <(echo "$$raced"))
	files=$$(grep -rlE --include='*_test.go' $(LIBRARIES) $(GOROUTINES) . | xargs grep -L '^//go:build' | while read -r f; do grep -qxF "$${f%/*}" <<<"$$plain" && echo "$$f" || true; done)
	both=$$(folders <<<"$$files")
	go test -vet=off -shuffle=on $$(comm -23 <(echo "$$plain") <(echo "$$both"))
	go test -vet=off -shuffle=on -skip "^($$(names <<<"$$files"))$$" ./kernels/gpu $$(grep -vx ./kernels/gpu <<<"$$both") # what takes longest begins first
	go test -vet=off $(RACE) -shuffle=on $$raced
	go test -vet=off $(RACE) -shuffle=on -run "^($$(names <<<"$$files"))$$" $$both
	# The tests of what allocates are named for it, and say nothing of a sync.Pool under the race detector. Nor does it go over files with the tag !race: they run
	# long on the interpreter of GPUs, on one goroutine, or on large values.
	go test -vet=off -run Allocat $$(of 'testing\.AllocsPerRun' | folders)
	go test -vet=off -shuffle=on -run "^($$(of '^//go:build !race' | names))$$" $$(of '^//go:build !race' | folders)

# The linter is pinned in tools/go.mod; the tests in tools show that its import rules can fail.
lint:
	$(TOOL) golangci-lint run --allow-parallel-runners ./... # of another tree, perhaps
	cd tools && go test -count=1 ./... # its inputs lie outside its module: never cached

bench:
	go test -run '^$$' -bench . -benchmem ./...

# Weft, gRPC-Go and torch RPC in turns, and one table; bench/README.md says what compares.
peers:
	go run ./bench/peers $(PEERS)

# What floods of strangers cost a job's members; bench/flood says what must hold.
floods:
	go run ./bench/flood $(FLOODS)

# Every fuzz target of every package below FUZZIN for FUZZTIME, one on each processor; what they learn is kept with the build cache.
fuzz:
	tmp=$$(mktemp -d)
	trap 'rm -rf "$$tmp"' EXIT
	export tmp
	binary() { echo "$$tmp/bin/$$(tr / _ <<<"$$1")"; }
	build() { go test -c -fuzz . -o "$$(binary "$$1")" "$$1"; }
	targets() { (cd "$$1" && "$$(binary "$$1")" -test.list '^Fuzz' | sed "s,^,$$1 ,"); }
	fuzz() {
		out=$$(mktemp -p "$$tmp")
		cache=$$(go env GOCACHE)/fuzz/$$(go list "$$1")
		if ! (cd "$$1" && "$$(binary "$$1")" -test.run '^$$' -test.fuzz "^$$2\$$" -test.fuzztime $(FUZZTIME) -test.parallel 1 -test.fuzzcachedir "$$cache") </dev/null >"$$out" 2>&1; then
			grep -q 'Failing input' "$$out" || ! grep -q '^    context deadline exceeded' "$$out" && { echo "fuzz: $$1 $$2 failed"; cat "$$out"; return 255; } # the others end, too
			echo "the time was over before Go's fuzzer had ended; it found nothing" >"$$out"
		fi
		echo "fuzz: $$1 $$2: $$(tail -n 1 <(grep -v '^PASS' "$$out"))"
	}
	export -f binary build targets fuzz
	grep -rl --include='*_test.go' '^func Fuzz' $(FUZZIN) | xargs -n 1 dirname | sort -u >"$$tmp/folders"
	xargs -P 2 -n 1 bash -c 'build "$$@"' _ <"$$tmp/folders" # linking is of one thread
	xargs -n 1 bash -c 'targets "$$@"' _ <"$$tmp/folders" | xargs -P "$$(getconf _NPROCESSORS_ONLN)" -n 2 bash -c 'fuzz "$$@"' _

# Ten minutes of calls between processes that are killed and join again; an hour of a group whose members are killed, left out and replaced; 200 kills in a team that trains; five
# minutes of 64 passes at once; then every random test a hundred times as long:
# the tag makes internal/soak multiply the number of its cases.
soak:
	WEFT_SOAK=$${WEFT_SOAK:-10m} go test -count=1 -v -timeout $(SOAKTIME) -run '^TestSoak$$' ./internal/disttest/process
	WEFT_SOAK=$${WEFT_SOAK:-60m} go test -count=1 -v -timeout $(SOAKTIME) -run '^TestGroupSoak$$' ./internal/disttest/process
	WEFT_SOAK=$${WEFT_SOAK:-1m} go test -count=1 -v -timeout $(SOAKTIME) -run 'ATeamTrainsOn|ANewcomerWithALarge' ./internal/disttest/process
	WEFT_SOAK=$${WEFT_SOAK:-5m} go test -count=1 -v -timeout $(SOAKTIME) -run 'SixtyFourPasses' ./internal/disttest
	go test $(RACE) -tags soak -shuffle=on -count=1 -timeout $(SOAKTIME) ./...

# Three hosts as network namespaces behind a switch that delays, loses and cuts, for workers and for jobs of weft run. Needs root and /dev/net/tun.
netns:
	go test -tags netns -count=1 -v -timeout 10m ./internal/disttest/netns

# PyTorch at the other end: its stores and ours, its launcher with our workers, ours with its scripts. Debian's python3-torch is one: make interop PYTHON=/usr/bin/python3
# And Python's safetensors, where SAFETENSORS is an interpreter that has it.
PYTHON ?= python3
SAFETENSORS ?= $(PYTHON)
interop:
	go test -tags interop -count=1 -v -timeout 30m ./internal/disttest/interop -python "$(PYTHON)" -safetensors "$(SAFETENSORS)"

cover:
	go test -coverprofile=cover.out -coverpkg=./... ./...
	go tool cover -func=cover.out | tail -1

# The tag gpu needs a C compiler, and no toolkit: cuda.h is our own. The binaries run with and without a GPU.
HEADERS ?= $(CURDIR)/device/cuda/native/include
GPU := CGO_ENABLED=1 CGO_CFLAGS="-O2 -g -I$(CURDIR)/device/cuda/native/shim -I$(HEADERS)"
gpu:
	$(GPU) go build -tags gpu -o bin/ ./cmd/weft ./examples/digits ./examples/pipeline
	needed=$$(readelf -d bin/weft bin/digits bin/pipeline | grep NEEDED)
	! grep -v 'libc\.so' <<<"$$needed" # CUDA's libraries are opened when the program runs, if they are there

# What the tag changes. A package that does not link the driver's is the same with the tag and without, so make test has tested it. Those that do are the
# driver's own and the few that go list finds here: of them run again the tests that go through the driver (a fake one), that look for a GPU, and doctor's,
# which are named for it (etcd, jobs and the elastic agent of cmd/weft know nothing of the tag). GPUTESTS=./... runs everything again.
DRIVER := github.com/weft-project/weft/device/cuda/native
GPUTESTS ?= $(shell CGO_ENABLED=1 go list -tags gpu -test -f '{{.ImportPath}} {{join .Deps " "}} ' ./... | sed -n 's,\.test .* $(DRIVER) .*,,p' | grep -vx -e $(DRIVER) -e .*/kernels/gpu)
GPURUN ?= $(if $(filter ./...,$(GPUTESTS)),.,ThroughTheDriver|WithoutAGPU|EachGPU|GPUsAreCounted|NamedDevice|LibraryOfProducts|DeviceReport|DoctorReports)
gpu-test:
	$(GPU) go vet -tags gpu ./...
	$(GPU) go vet -tags "gpu gpucheck" ./...
	$(GPU) go test -vet=off $(RACE) -tags gpu -shuffle=on ./device/cuda/native/...
	$(GPU) go test -vet=off $(RACE) -tags gpu -shuffle=on -run '$(GPURUN)' $(GPUTESTS)
	$(GPU) go test -vet=off -tags gpu -run ThroughTheDriver ./kernels/gpu ./bench/gpu/... # without the race detector, which takes minutes

# A driver that hangs, crashes, loses the GPU or runs out of memory in each of its calls: all calls with all kinds, of which gpu-test takes a sample.
gpu-faults:
	$(GPU) go test -tags "gpu soak" -count=1 -v -timeout 1h -run 'InAnyCall|AtAnyCall|AnyCallThatFails|HangsOrCrashes' ./device/cuda/native ./bench/gpu/...

# The driver's package with NVIDIA's cuda.h of 11.8 to 13.0 in place of ours: make gpu-headers HEADERS=/usr/local/cuda/include
# Our values must be theirs, but for old targets, which they drop, and a mask, which grows.
gpu-headers:
	(echo '#include <cuda.h>' && sed -nE 's/\b(CU[A-Z0-9_]+) = ([0-9]+),?/\n#\1 \2\n/gp' device/cuda/native/include/cuda.h |
		sed -nE '/CU_TARGET|FLAGS_MASK/d; s/^#(.*) (.*)/_Static_assert(\1 == \2, "\1");/p') | $$(go env CC) -I$(HEADERS) -fsyntax-only -x c -
	$(GPU) go vet -tags gpu ./device/cuda/native/...
	$(GPU) go test -tags gpu ./device/cuda/native/...

# NVIDIA's cuBLASLt takes all descriptors, without a GPU: make gpu-descriptors LIB=/path/libcublasLt.so.13 (several with commas between)
LIB ?=
gpu-descriptors:
	[ -n "$(LIB)" ] || { echo "name a library: make gpu-descriptors LIB=/path/libcublasLt.so.13" >&2; exit 1; }
	$(GPU) go test -tags gpu -count=1 -v -run '^TestAllDescriptors' ./device/cuda/native -cublaslt '$(LIB)'

# The table of what NVIDIA's headers of NCCL say, by which tests hold the binding: make nccl-abi HEADERS=/path/nccl.h (several with commas between).
# WRITE=1 writes it anew, and then names headers of all versions.
nccl-abi: HEADERS =
nccl-abi:
	[ -n "$(HEADERS)" ] || { echo "name a header: make nccl-abi HEADERS=/path/nvidia/nccl/include/nccl.h" >&2; exit 1; }
	go test -count=1 -v -run '^TestTheTableIsWhatHeadersSay' ./device/cuda/nccl -headers '$(HEADERS)' $(if $(WRITE),-write)

# NVIDIA's NCCL is opened, makes ids and says what it lacks, without a GPU: make nccl-libraries LIB=/path/libnccl.so.2 (several with commas between)
nccl-libraries:
	[ -n "$(LIB)" ] || { echo "name a library: make nccl-libraries LIB=/path/nvidia/nccl/lib/libnccl.so.2" >&2; exit 1; }
	go test -count=1 -v -run '^TestLibrariesServe' ./device/cuda/nccl -libraries '$(LIB)'

# What a machine with a GPU needs to check Weft on it: it has no Go there, nor anything else but NVIDIA's driver and, for fast products, cuBLASLt.
# The test binaries are those of packages whose tests run on a real GPU (internal/testgpu).
REALTESTS := ./internal/testgpu ./kernels/gpu ./kernels/gpu/internal/gen ./autodiff ./internal/disttest/gpus ./examples/digits
LEAN := -trimpath -ldflags "-s -w -X main.commit=$$(git describe --always --dirty 2>/dev/null || echo unknown)"
# The window of xz is as wide as the largest binaries, so that it finds what they share, which is most of them; threads would each see a share of it.
CARRY ?= 55
gpu-bundle:
	command -v xz >/dev/null || { echo "make gpu-bundle: there is no xz, which packs the bundle: install it (xz-utils)" >&2; exit 1; }
	rm -rf bin/gpucheck bin/gpucheck.tar.*
	mkdir -p bin/gpucheck
	$(GPU) go vet -tags "gpu gpucheck" $(REALTESTS) ./bench/gpu
	$(GPU) go test -c -tags "gpu gpucheck" $(LEAN) -o bin/gpucheck/ $(REALTESTS)
	$(GPU) go build -tags "gpu gpucheck" $(LEAN) -o bin/gpucheck/gpucheck ./bench/gpu
	cp bench/torch/gpu.py bin/gpucheck/
	tar -C bin --sort=name -cf - gpucheck | xz --lzma2=preset=1,dict=64MiB >bin/gpucheck.tar.xz
	go run ./bench/gpu/carry -limit $(CARRY) bin/gpucheck.tar.xz bin/gpucheck || { rm -f bin/gpucheck.tar.xz; exit 1; }

# The bundle alone, as on a machine that has nothing else: make gpu-check GPUPART=second GPUCHECK='-device cuda:1'
GPUPART ?= first
GPUOUT ?= bench/results/$(shell date +%F)-gpu/$(GPUPART)
gpu-check:
	OUT= bench/gpu/contact.sh bin/gpucheck.tar.xz "$(GPUOUT)" $(GPUPART) $(GPUCHECK)
