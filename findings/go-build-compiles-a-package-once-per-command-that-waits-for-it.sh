#!/usr/bin/env bash
# Guess: go commands that run at once share the build cache: of two that need the same package, one compiles it and the other
#   waits for the result.
# Really: the cache has no lock for work in progress. Each command that misses it compiles the package itself, and the second
#   result replaces the same first one. So `go vet`, `go build` and `go test` beside each other after a change take the processor
#   time of each, on packages of all their dependencies: a script that starts them together is slower than one that compiles
#   first. Only downloads of modules are locked.
# Versions: go as installed, go1.26.8 seen; no modules
# Source: cmd/go/internal/work/buildid.go, useCache, and cmd/go/internal/cache: Put writes an entry when the action has ended.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-buildvcs=false GOWORK=off
go version
mkdir -p slow a b
printf 'module example.org/probe\n\ngo 1.21\n' > go.mod
{ # a package that takes a second or more to compile, and is in no cache
	echo "package slow"; echo "const Seed = \"$d\""
	echo "func Sum(x []int) (n int) {"
	for i in $(seq 1 12000); do echo "	if len(x) > $i { n += x[$i] * $i }"; done
	echo "	return n"; echo "}"
} > slow/slow.go
for p in a b; do printf 'package main\n\nimport "example.org/probe/slow"\n\nfunc main() { println(slow.Sum(nil), slow.Seed) }\n' > $p/main.go; done
cat > rt.go <<'G'
package main

func main() {}
G
go build -o /dev/null rt.go # the runtime is there
(go build -x -o a.out ./a 2> a.log) & (go build -x -o b.out ./b 2> b.log) & wait
count() { grep -cE 'compile .*-p example.org/probe/slow ' "$1" || true; }
at_once="$(count a.log) and $(count b.log)"
go build -x -o c.out ./a 2> c.log
after=$(count c.log)
echo "two commands at once: compiled $at_once times; one after them: $after"
[[ $at_once == "1 and 1" && $after == 0 ]] || { echo CHANGED; exit 1; }
