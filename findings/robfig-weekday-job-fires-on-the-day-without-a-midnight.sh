#!/usr/bin/env bash
# Guess: where clocks are set forward at midnight, a cron library may leave out 00:30 of that day; "30 22 * * 0-4" (Sunday to
#   Thursday) fires on no Friday, and a line of Fridays at 02:30, a time that exists, fires on each Friday.
# Really: in Cairo, Friday, 24 April 2026 begins at 01:00. The line of Sunday to Thursday fires on that Friday at 22:30, and the
#   line of Fridays does not: two weeks pass. The same in Beirut on 29 March; in Havana and Santiago the first alone. gocron,
#   which has robfig's parser, does both. cronie has neither.
# Versions: github.com/robfig/cron/v3 v3.0.1
# Source: spec.go (Next): hours are added until one fits, and days are compared again at hour 0 alone, which is passed from
#   23:00 to 01:00; a day is entered by its midnight, moved back to 23:00 of the day before, which does not fit.
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

	"github.com/robfig/cron/v3"
)

func main() {
	cairo, err := time.LoadLocation("Africa/Cairo")
	must(err)
	var all []string
	for _, spec := range []string{"30 22 * * 0-4", "30 2 * * 5"} {
		s, err := cron.ParseStandard(spec)
		must(err)
		var shown []string
		for at := s.Next(time.Date(2026, 4, 16, 0, 0, 0, 0, cairo)); at.Before(time.Date(2026, 5, 2, 0, 0, 0, 0, cairo)); at = s.Next(at) {
			if at.Day() > 22 || at.Day() < 3 || spec == "30 2 * * 5" {
				shown = append(shown, at.Format("Mon 2 Jan 15:04"))
			}
		}
		fmt.Printf("%-14s %s\n", spec, strings.Join(shown, ", "))
		all = append(all, strings.Join(shown, ", "))
	}
	if !strings.Contains(all[0], "Fri 24 Apr 22:30") || strings.Contains(all[1], "24 Apr") || !strings.Contains(all[1], "17 Apr 02:30, Fri 1 May") {
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
go get github.com/robfig/cron/v3@v3.0.1 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go list -m github.com/robfig/cron/v3
go run .
