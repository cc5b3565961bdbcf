#!/usr/bin/env bash
# Guess: a label is stored as it is exposed, so rules match the buckets of a histogram by the text on /metrics: a bucket with
#   le="1" by {le="1"}.
# Really: the parser of Prometheus 3 rewrites le of a classic histogram as a float: le="1.0". A rule with {le="1"} finds nothing,
#   and no error says so; le="0.5" and le="+Inf" stay as they are. Without the line "# TYPE … histogram" the text stays, too: the
#   same exposition is stored in either form. A rule that is to match both has le=~"1(\\.0)?".
# Versions: github.com/prometheus/prometheus v0.305.0 (Prometheus 3.5.0), Go 1.26
# Source: model/textparse/interface.go, normalizeFloatsInLabelValues, called by PromParser.Labels.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS=-mod=mod GOWORK=off
cat > go.mod <<'M'
module probe
go 1.26
M
cat > main.go <<'G'
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

const series = `wait_seconds_bucket{le="0.5"} 3
wait_seconds_bucket{le="1"} 4
wait_seconds_bucket{le="+Inf"} 5
`

// stored returns which le of the exposition the parser of a scrape hands on, and how many series {le="1"} matches.
func stored(exposed string) (le []string, found int) {
	one := labels.MustNewMatcher(labels.MatchEqual, "le", "1")
	p := textparse.NewPromParser([]byte(exposed), labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return le, found
		}
		if err != nil {
			panic(err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		p.Labels(&l)
		le = append(le, l.Get("le"))
		if one.Matches(l.Get("le")) {
			found++
		}
	}
}

func main() {
	typed, found := stored("# TYPE wait_seconds histogram\n" + series)
	plain, untyped := stored(series)
	fmt.Println(`exposed le="0.5" le="1" le="+Inf"; stored:`, typed, `{le="1"} matches`, found)
	fmt.Println(`without its TYPE; stored:                `, plain, `{le="1"} matches`, untyped)
	if fmt.Sprint(typed, found, plain, untyped) != "[0.5 1.0 +Inf] 0 [0.5 1 +Inf] 1" {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}
G
go get github.com/prometheus/prometheus@v0.305.0 >/dev/null 2>&1
go run .
