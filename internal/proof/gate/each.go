package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// single is a test that was run alone.
type single struct {
	name      string // with the package before it
	wall, own float64
	passed    bool
}

// each runs each test of some packages alone, one after the other, and prints the slowest ones, by
// the wall clock and by processor time: where several tests share a process, neither is known.
func each(ctx context.Context, w io.Writer, args []string) (passed bool, err error) {
	flags := flag.NewFlagSet("gate each", flag.ContinueOnError)
	race := flags.Bool("race", false, "build with the race detector")
	short := flags.Bool("short", false, "run with -short")
	most := flags.Int("n", 50, "so many of each list")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "gate-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	pkgs, err := foldersWithTests(ctx, flags.Args())
	if err != nil {
		return false, err
	}
	var all []single
	for i, pkg := range pkgs {
		if ctx.Err() != nil {
			break // what was run so far is listed
		}
		fmt.Fprintf(os.Stderr, "%s: %d of %d packages, %d tests so far\n", filepath.Base(pkg), i+1, len(pkgs), len(all))
		binary := filepath.Join(dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "_"))
		build := exec.CommandContext(ctx, "go", slices.Concat([]string{"-C", pkg, "test", "-c", "-o", binary}, given(*race, "-race"), []string{"."})...) //nolint:gosec // a package of ours
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil && ctx.Err() == nil {
			return false, err
		}
		found, err := eachOf(ctx, pkg, binary, given(*short, "-test.short"))
		if err != nil && ctx.Err() == nil {
			return false, err
		}
		all = append(all, found...)
	}
	printSlowest(w, "by the wall clock", all, *most, func(s single) float64 { return s.wall })
	printSlowest(w, "by processor time", all, *most, func(s single) float64 { return s.own })
	return !slices.ContainsFunc(all, func(s single) bool { return !s.passed }), ctx.Err()
}

// foldersWithTests returns the folders of packages: one that is named, which may be of another module, and those with
// tests that a pattern such as ./cmd/... matches.
func foldersWithTests(ctx context.Context, patterns []string) (dirs []string, err error) {
	for _, pattern := range patterns {
		if !strings.Contains(pattern, "...") {
			dirs = append(dirs, pattern)
			continue
		}
		list := exec.CommandContext(ctx, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", pattern)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, strings.Fields(string(out))...)
	}
	return dirs, nil
}

func given(set bool, flag string) []string {
	if set {
		return []string{flag}
	}
	return nil
}

// eachOf runs the tests of a binary in the folder of their package.
func eachOf(ctx context.Context, pkg, binary string, flags []string) (all []single, err error) {
	list := exec.CommandContext(ctx, binary, "-test.list", "^(Test|Example)") //nolint:gosec // built above
	list.Dir = pkg
	names, err := list.Output()
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(string(names)) {
		name = strings.TrimSpace(name)
		cmd := exec.CommandContext(ctx, binary, append(slices.Clone(flags), "-test.timeout=10m", "-test.run=^"+name+"$")...) //nolint:gosec // built above
		cmd.Dir = pkg
		begun := time.Now()
		err := cmd.Run()
		if ctx.Err() != nil {
			return all, ctx.Err()
		}
		s := single{name: filepath.Base(pkg) + "." + name, wall: time.Since(begun).Seconds(), passed: err == nil}
		if used := cmd.ProcessState; used != nil {
			s.own = (used.UserTime() + used.SystemTime()).Seconds()
		}
		all = append(all, s)
	}
	return all, nil
}

func printSlowest(w io.Writer, by string, all []single, most int, of func(single) float64) {
	fmt.Fprintf(w, "%8s %8s  slowest %s\n", "wall s", "own s", by)
	slices.SortStableFunc(all, func(a, b single) int { return cmp.Compare(of(b), of(a)) })
	for _, s := range all[:min(most, len(all))] {
		failed := ""
		if !s.passed {
			failed = " FAILED"
		}
		fmt.Fprintf(w, "%8.2f %8.2f  %s%s\n", s.wall, s.own, s.name, failed)
	}
}
