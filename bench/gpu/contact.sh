#!/usr/bin/env bash
# First contact with a GPU: the bundle of make gpu-bundle, run on a machine that has nothing else.
#
#	contact.sh [BUNDLE] [OUT] [first|second] [FLAG…]
#
# BUNDLE is a file named *.tar.xz or *.tar.gz. Without it, contact.sh takes gpucheck.tar.xz beside
# itself, or the one in the bin of the tree that it is in. It unpacks the bundle where it lies, into
# gpucheck, or into a temporary folder where it cannot write there.
# OUT is the folder for result.json and result.md. Without it, the variable OUT names the folder.
# Where both are given, the word is that folder, or one below it.
# "first" is the default. It says whether Weft is right, and how fast at what tells most. "second"
# has the other benchmarks, second rounds and compute-sanitizer.
#
# Flags go to gpucheck:
#	-device cuda:N       the GPU to check (default cuda:0); interpreter tries it all without one
#	-only STEP,…         only steps whose names begin so, and the step device
#	-rounds N            rounds that a median is of (default 30)
#	-budget TIME         time for everything, as 9m; contact.sh sets what is left of its own
#
# It ends within 570 s, and there are results from its first second on. It ends as gpucheck does:
# 0: all is well, 1: something is not, or it was ended, 2: a wrong command line, 3: results could
# not be written. It ends with 4 where there is no bundle that can be unpacked.
set -uo pipefail
export PYTHONUNBUFFERED=1
whole=555 # seconds; gpucheck ends at most 8 s later

wrong() { echo "contact.sh: $1; expected contact.sh [BUNDLE] OUT [first|second] [FLAG…]" >&2 && exit 2; }

bundle='' part='' out='' flags=()
while [ $# -gt 0 ]; do
	case $1 in
	-h | -help | --help) sed -n '2,/^[^#]/s/^#[[:space:]]\{0,1\}//p' "$0" && exit ;;
	-*) flags=("$@") && break ;;
	first | second) kind=part ;;
	*.tar.?z) kind=bundle ;;
	*.zip | *.tar | *.tgz | *.txz | *.xz | *.gz) wrong "$1 is no bundle, which is a .tar.xz or .tar.gz" ;;
	*) kind=out ;;
	esac
	[ -z "${!kind}" ] || wrong "unexpected word $1, as there is ${!kind}"
	printf -v $kind %s "$1"
	shift
done
case $out in
'' | "${OUT:-$out}" | "${OUT-}"/*) OUT=${out:-${OUT-}} ;;
*) wrong "unexpected word $out, as the variable OUT is $OUT" ;;
esac
[ -n "$OUT" ] || wrong "no folder for results"
here=$(cd "$(dirname "$0")" && pwd)
for file in "$here/gpucheck.tar.xz" "$here/../../bin/gpucheck.tar.xz"; do [ -n "$bundle" ] || [ ! -e "$file" ] || bundle=$file; done

# say writes results before there is a gpucheck that does. Its argument has nothing that JSON would need escaped.
say() {
	mkdir -p "$OUT" && for kind in json md; do
		if [ $kind = json ]; then printf '{"state": "%s", "green": false, "steps": []}\n' "$1"; else printf '# gpucheck\n\n**%s**\n' "$1"; fi >"$OUT/result.$kind.part" &&
			mv "$OUT/result.$kind.part" "$OUT/result.$kind"
	done || echo "contact.sh: nothing can be written to $OUT" >&2
}

say "unpacking"
[ -r "$bundle" ] || { say "there is no bundle" && echo "contact.sh: there is no bundle ${bundle:-beside this file or in bin}; make gpu-bundle makes it" >&2 && exit 4; }
at=$(dirname "$bundle")
[ -w "$at" ] || at=$(mktemp -d)
rm -rf "$at/gpucheck"
unpack() { tar -xf "$bundle" -C "$at" 2>/dev/null || python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$at"; }
for signal in HUP INT TERM; do trap '[ -z "${!-}" ] || kill -- "-$!"; say "ended by SIG'$signal' while unpacking"; exit 1' $signal; done
set -m # a group of its own, so that a signal ends all of it
unpack &
set +m
wait $! || { say "the bundle cannot be unpacked" && echo "contact.sh: $bundle cannot be unpacked into $at: that needs room, and tar and xz or a python3 with lzma" >&2 && exit 4; }
trap - HUP INT TERM
shopt -s execfail
exec "$at/gpucheck/gpucheck" -out "$OUT" -part ${part:-first} -budget $((whole - SECONDS))s ${flags[@]+"${flags[@]}"}
say "gpucheck cannot be run" && exit 4
