package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/version"

	"github.com/etcdkit/etcdkit/bench/measure"
)

// selected returns the groups whose names match the expression.
func selected(groups []measure.Group, only string) ([]measure.Group, error) {
	re, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var some []measure.Group
	for _, g := range groups {
		if re.MatchString(g.Name) {
			some = append(some, g)
		}
	}
	if len(some) == 0 {
		return nil, fmt.Errorf("-only %q matches no group", only)
	}
	return some, nil
}

// machine describes where it was measured.
func machine(redis string, fsync time.Duration, o options) measure.Machine {
	return measure.Machine{
		Date: time.Now().UTC().Format("2006-01-02"), CPU: processor(), Cores: runtime.GOMAXPROCS(0),
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), Etcd: version.Version, Redis: redis,
		Fsync: float64(fsync.Microseconds()) / 1e3, Rounds: o.rounds, Each: o.each.String(), Note: o.note,
	}
}

// processor returns the name of the processor, where the system tells it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "processor unknown"
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "processor unknown"
}

// progress writes one line that is overwritten on a terminal, and a line for each group elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	rounds   int
	groups   int
	begun    time.Time
	round    int
	group    string
	seen     int // groups begun
}

func newProgress(w io.Writer, rounds, groups int) *progress {
	p := &progress{w: w, rounds: rounds, groups: groups, begun: time.Now()}
	if f, ok := w.(*os.File); ok {
		st, err := f.Stat()
		p.terminal = err == nil && st.Mode()&os.ModeCharDevice != 0
	}
	return p
}

func (p *progress) step(round int, group, cell string) {
	next := p.seen == 0 || round != p.round || group != p.group
	if next {
		p.seen, p.round, p.group = p.seen+1, round, group
	}
	took := time.Since(p.begun)
	text := fmt.Sprintf("bench: round %d of %d, %s elapsed", round+1, p.rounds, took.Round(time.Second))
	if p.seen > p.groups { // one round shows how long the others take
		left := took * time.Duration(p.rounds*p.groups-p.seen+1) / time.Duration(p.seen-1)
		text += fmt.Sprintf(", about %s left", left.Round(time.Second))
	}
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r\033[K%.*s", 118, text+": "+cell)
	case next:
		fmt.Fprintln(p.w, text+": "+group)
	}
}

func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K")
	}
}
