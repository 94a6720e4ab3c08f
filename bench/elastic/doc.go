// Elastic measures launchers of elastic jobs, weft run and torchrun, in turns on the same trivial
// jobs of two workers for each agent: from launch to end, and from kill -9 of a worker until its
// replacement runs. `make peers PEERS='-only elastic'` runs all.
//
//	go run ./bench/elastic [-launcher weft,weft-group,torchrun] [-python /usr/bin/python3] [-worker python|go] [-only end,replace,alone]
//
// All launchers get the same flags, but for weft-group's --restart-policy. The worker is worker.py
// or this program: it tells its rank over a connection and stays until that is closed. So a
// worker's start and end are seen when they happen, by one clock and with no file.
package main
