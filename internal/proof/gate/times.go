package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// times are the seconds that one package of one target took, each of which may have waited for
// other work of the machine.
type times struct {
	Target  string
	Package string  // short
	Build   float64 // its own files and those of its tests
	Link    float64
	Run     float64
}

func (t times) sum() float64 { return t.Build + t.Link + t.Run }

// action is one line of the graph that go test -debug-actiongraph writes.
type action struct {
	Mode, Package       string
	TimeStart, TimeDone time.Time
}

// timesOf adds up the actions of each package of ours. A test's parts are packages of their own for
// the go command: "p [p.test]", "p_test [p.test]" and "p.test".
func timesOf(target string, actions []action, module string) []times {
	by := map[string]*times{}
	for _, a := range actions {
		name, _, _ := strings.Cut(a.Package, " ")
		name = strings.TrimSuffix(strings.TrimSuffix(name, ".test"), "_test")
		if !strings.HasPrefix(name, module) || a.TimeStart.IsZero() || a.TimeDone.IsZero() {
			continue
		}
		t := by[name]
		if t == nil {
			t = &times{Target: target, Package: strings.TrimPrefix(name, module+"/")}
			by[name] = t
		}
		took := a.TimeDone.Sub(a.TimeStart).Seconds()
		switch a.Mode {
		case "build", "vet":
			t.Build += took
		case "link":
			t.Link += took
		case "test run":
			t.Run += took
		}
	}
	var all []times
	for _, t := range by {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b times) int { return strings.Compare(a.Package, b.Package) })
	return all
}

// appendTimes appends the times of a run, of which the go command has written the graph, to the
// file of the options.
func (o options) appendTimes(graph string) error {
	text, err := os.ReadFile(graph)
	if err != nil {
		return err
	}
	var actions []action
	if err := json.Unmarshal(text, &actions); err != nil {
		return fmt.Errorf("the go command's action graph: %w", err)
	}
	var lines []string
	for _, t := range timesOf(o.target, actions, cmp.Or(o.module, ours)) {
		line, err := json.Marshal(t)
		if err != nil {
			return err
		}
		lines = append(lines, string(line))
	}
	return appendTo(o.times, lines)
}

// readTimes reads what appendTimes has written.
func readTimes(file string) ([]times, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []times
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var t times
		if err := json.Unmarshal(s.Bytes(), &t); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, t)
	}
	return all, nil
}
