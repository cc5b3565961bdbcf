#!/usr/bin/env bash
# Guess: gronx's NextTickAfter returns the first time for which IsDue is true, on each day of the year.
# Really: when the clocks are set back, "*/15 * * * *" leaves the first of the two equal hours out: after 01:45 CEST comes
#   02:00 CET, 75 minutes later, though IsDue is true at 02:00, 02:15, 02:30 and 02:45 CEST. "* * * * *" has both hours. So
#   a daemon that asks IsDue each minute runs four times more than one that waits for NextTickAfter, and what a page shows
#   as next is not what runs. robfig/cron has both hours for both.
# Versions: github.com/adhocore/gronx v1.20.4, github.com/robfig/cron/v3 v3.0.1
# Source: gronx's next.go (loop, bumpUntilDue), which builds times by time.Date; of two equal ones Go takes the second here.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
go mod init probe >/dev/null 2>&1
cat > main.go <<'G'
package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/adhocore/gronx"
	"github.com/robfig/cron/v3"
)

func main() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	must(err)
	from, end := time.Date(2027, 10, 30, 23, 40, 0, 0, time.UTC).In(berlin), time.Date(2027, 10, 31, 2, 10, 0, 0, time.UTC)
	counts := map[string]string{}
	for _, spec := range []string{"*/15 * * * *", "* * * * *"} {
		due, next, robfig := 0, 0, 0
		g := gronx.New()
		for at := from.Add(time.Minute); at.Before(end); at = at.Add(time.Minute) {
			ok, err := g.IsDue(spec, at)
			must(err)
			if ok {
				due++
			}
		}
		var shown []string
		for at := from; ; next++ {
			at, err = gronx.NextTickAfter(spec, at, false)
			must(err)
			if !at.Before(end) {
				break
			}
			shown = append(shown, at.In(berlin).Format("15:04 MST"))
		}
		s, err := cron.ParseStandard(spec)
		must(err)
		for at := s.Next(from); at.Before(end); at = s.Next(at) {
			robfig++
		}
		counts[spec] = fmt.Sprint(due, next, robfig)
		fmt.Printf("%-12s  IsDue each minute: %d, NextTickAfter: %d, robfig/cron: %d\n", spec, due, next, robfig)
		if next < 10 {
			fmt.Println("              NextTickAfter:", strings.Join(shown, ", "))
		}
	}
	if counts["*/15 * * * *"] != "10 6 10" || counts["* * * * *"] != "149 149 149" {
		fmt.Println("CHANGED")
		os.Exit(1)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
G
go get github.com/adhocore/gronx@v1.20.4 github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go list -m github.com/adhocore/gronx github.com/robfig/cron/v3
go run .
