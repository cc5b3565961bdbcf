#!/usr/bin/env bash
# Guess: t.ZoneBounds() returns a range that t is in: "the zone begins at start and the next zone begins at end", so
#   that a loop over the changes of a zone advances by taking end.
# Really: on December 31 of a leap year after the explicit table of the zone (2040, 2044, …) end is at or before t, so such a
#   loop stays where it is. In all years after the table, zones also end and begin at the turn of the year, where no clock is
#   changed. time.LoadLocation with the tables of the system or of time/tzdata: the same.
# Versions: go1.26 (standard library)
# Source: time/zoneinfo.go, tzset: the last zone of a year ends 365 days after its beginning.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
export GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off
go mod init probe >/dev/null 2>&1
cat > main.go <<'G'
package main

import (
	"fmt"
	"os"
	"runtime"
	"time"
	_ "time/tzdata"
)

func main() {
	fmt.Println(runtime.Version())
	for _, zone := range []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			panic(err)
		}
		var wrong []int
		for year := 2024; year < 2060; year++ {
			t := time.Date(year, 12, 31, 18, 0, 0, 0, time.UTC).In(loc)
			if _, end := t.ZoneBounds(); !end.IsZero() && !end.After(t) {
				wrong = append(wrong, year)
			}
		}
		t := time.Date(2041, 1, 15, 0, 0, 0, 0, loc)
		start, _ := t.ZoneBounds()
		_, before := start.Add(-time.Second).Zone()
		_, after := start.Zone()
		fmt.Printf("%-20s end is not after December 31, 18:00 UTC, of %v; the zone of January 2041 begins at %v, clock changed by %d s\n", zone, wrong, start.UTC().Format(time.DateTime), after-before)
		if fmt.Sprint(wrong) != "[2040 2044 2048 2052 2056]" || after != before {
			fmt.Println("CHANGED")
			os.Exit(1)
		}
	}
}
G
go run .
