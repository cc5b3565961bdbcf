#!/bin/bash
# Prints the verbs and flags of etcdctl and etcdutl, which `make runbook` builds: bash etcdctl.sh bin >etcdctl.txt
set -euo pipefail
flags() { sed -nE '/^(OPTIONS|Flags):/,$p' | grep -oE '^ +(-[a-zA-Z], )?--[a-z-]+' | tr -d ',' | xargs; }
echo "# v$("$1/etcdctl" version | sed -n 's/^etcdctl version: //p')"
echo "# Written by etcdctl.sh."
"$1/etcdctl" help | sed -n '/^COMMANDS:/,/^OPTIONS:/s/^  \([a-z][a-z -]*[a-z]\)	.*/\1/p' | while read -r verb; do
	# shellcheck disable=SC2086
	echo "etcdctl $verb: $("$1/etcdctl" help $verb | flags)"
done
for verb in defrag hashkv "snapshot restore" "snapshot status" version; do
	# shellcheck disable=SC2086
	echo "etcdutl $verb: $("$1/etcdutl" $verb --help | flags)"
done
