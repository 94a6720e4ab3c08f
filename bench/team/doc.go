// Team is the worker of bench/torch/restart.py -team: a member of a team of parallel/resilient that
// trains the model of bench/collective, and writes down each step that it has made.
//
//	go build -o bin/ ./cmd/weft ./bench/team
//	python3 bench/torch/restart.py -n 4 -team "bin/weft run --nproc-per-node 4 --max-restarts 1000 bin/team -folder FOLDER"
package main
