package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// progressOn returns where a run shows how far it is: on standard error, if a person or a log of CI
// reads it there, and otherwise nowhere.
func progressOn(stderr *os.File) io.Writer {
	if term.IsTerminal(int(stderr.Fd())) || os.Getenv("CI") == "true" {
		return stderr
	}
	return nil
}

const (
	firstWord = 3 * time.Second  // before the first line
	nextWords = 30 * time.Second // between two lines of a log; a terminal's is kept up to date
)

// progress shows how far a go test is: how many of its packages have ended, and which run. A nil
// *progress shows nothing.
type progress struct {
	w        io.Writer
	target   string // with which each line begins, or none
	terminal bool
	begun    time.Time
	end      context.CancelFunc
	done     chan struct{}

	mu      sync.Mutex
	all     int // packages, or 0 while that is not known
	over    int
	running []string
	line    bool // the terminal shows a line
}

// follow begins to show how far a run on packages is.
func (o options) follow(command, packages []string) *progress {
	if o.progress == nil {
		return nil
	}
	f, ok := o.progress.(*os.File)
	p := &progress{w: o.progress, target: o.target, terminal: ok && term.IsTerminal(int(f.Fd())), begun: time.Now(), done: make(chan struct{})}
	ctx, end := context.WithCancel(context.Background())
	p.end = end
	go p.count(ctx, command, packages)
	go p.loop(ctx)
	return p
}

// count finds out how many packages there are, which go test reports one by one.
func (p *progress) count(ctx context.Context, command, packages []string) {
	args := []string{"list"}
	for _, flag := range command {
		if strings.HasPrefix(flag, "-modfile=") || flag == "-race" {
			args = append(args, flag)
		}
	}
	cmd := exec.CommandContext(ctx, command[0], append(args, packages...)...) //nolint:gosec // as the caller's command
	if len(command) > 2 && command[1] == "-C" {
		cmd.Dir = command[2]
	}
	out, err := cmd.Output()
	if err != nil {
		return // go test says why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = strings.Count(string(out), "\n")
}

func (p *progress) loop(ctx context.Context) {
	defer close(p.done)
	wait := firstWord
	for {
		select {
		case <-ctx.Done():
			p.clear()
			return
		case <-time.After(wait):
			p.show()
			if wait = nextWords; p.terminal {
				wait = time.Second
			}
		}
	}
}

func (p *progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := p.text(time.Since(p.begun))
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K", within(p.columns(), text))
		p.line = true
		return
	}
	fmt.Fprintln(p.w, text)
}

// columns returns how wide the terminal is.
func (p *progress) columns() int {
	if f, ok := p.w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// within cuts a line so that a terminal of so many columns does not wrap it: what takes it off again takes one row.
func within(columns int, line string) string {
	if len(line) < columns { // it is ASCII
		return line
	}
	return line[:columns-1]
}

// text is the line after a time.
func (p *progress) text(after time.Duration) string {
	all := "all"
	if p.all > 0 {
		all = strconv.Itoa(p.all)
	}
	doing := "running " + strings.Join(p.running, ", ")
	switch {
	case len(p.running) > 0:
	case p.over > 0:
		doing = "compiling"
	default:
		doing = "compiling (the first build compiles etcd and gRPC, which can take minutes)"
	}
	return fmt.Sprintf("%s%4.0f s: %d of %s packages tested, %s", p.target, after.Seconds(), p.over, all, doing)
}

// clear takes the line off the terminal, so that output can follow.
func (p *progress) clear() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line {
		fmt.Fprint(p.w, "\r\033[K")
		p.line = false
	}
}

// started takes over from an event that its package runs.
func (p *progress) started(ev event) {
	if p == nil || ev.Action != "start" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, short(ev.Package))
}

func (p *progress) ended(pkg string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over++
	if i := slices.Index(p.running, short(pkg)); i >= 0 {
		p.running = slices.Delete(p.running, i, i+1)
	}
}

func (p *progress) stop() {
	if p == nil {
		return
	}
	p.end()
	<-p.done
}

// ours is the path of this module; integration and bench are modules below it.
const ours = "github.com/etcdkit/etcdkit"

// short is a package's name within its module.
func short(pkg string) string { return strings.TrimPrefix(pkg, ours+"/") }
