package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/mutants"
)

// allTogether runs the mutants that name a test from one build of the product that has all of them, a test binary after the
// other, and reports each. It returns those that have to be built alone.
func allTogether(ctx context.Context, all []mutants.Mutant, dir string, report func(mutants.Mutant, row, time.Duration)) (alone []mutants.Mutant, err error) {
	byTest := slices.DeleteFunc(slices.Clone(all), func(m mutants.Mutant) bool { return m.Test == "" })
	overlay, names, err := mutants.Together(byTest, ".", dir)
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(dir, "product"), 0o700); err != nil {
		return nil, err
	}
	var packages []string
	for _, m := range all {
		switch {
		case m.Test == "" || slices.Contains(names, m.Name):
			alone = append(alone, m)
		case !slices.Contains(packages, m.Package):
			packages = append(packages, m.Package)
		}
	}
	for _, pkg := range packages {
		own := slices.DeleteFunc(slices.Clone(byTest), func(m mutants.Mutant) bool { return m.Package != pkg || slices.Contains(names, m.Name) })
		rest, failure := binary{ctx, pkg, filepath.Join(dir, "product", path.Base(pkg)+".test")}.run(overlay, own, report)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", pkg, failure))
		}
		alone = append(alone, rest...)
	}
	return alone, err
}

// binary is a test binary that is each of its package's mutants.
type binary struct {
	ctx  context.Context //nolint:containedctx // of one run
	pkg  string
	file string
}

// run builds it and runs the mutants, some beside each other. Those whose test fails also in the product as it is built here are
// returned: a function that is called through another one is not quite the same.
func (b binary) run(overlay string, own []mutants.Mutant, report func(mutants.Mutant, row, time.Duration)) (alone []mutants.Mutant, err error) {
	if out, err := exec.CommandContext(b.ctx, "go", "test", "-c", "-overlay", overlay, "-vet=off", "-o", b.file, b.pkg).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the mutants of its tests: %w\n%s", err, out)
	}
	defer os.Remove(b.file)
	var flags []string
	if rapid, err := usesRapid(b.ctx, b.pkg); err != nil {
		return nil, err
	} else if rapid {
		flags = append(flags, noFailFile)
	}
	var tests []string
	for _, m := range own {
		tests = append(tests, m.Test)
	}
	out, err := b.test(b.file, strings.Join(slices.Compact(slices.Sorted(slices.Values(tests))), "|"), flags)
	if err != nil && !failed.Match(out) {
		return nil, fmt.Errorf("run the tests without a mutant: %w\n%s", err, out)
	}
	err = nil
	var red []string
	for _, f := range failed.FindAllSubmatch(out, -1) {
		red = append(red, string(f[1]))
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	turns := make(chan struct{}, 4*runtime.NumCPU()) // most wait for what does not come
	for _, m := range own {
		if slices.Contains(red, m.Test) {
			fmt.Fprintf(os.Stderr, "mutants: %s fails without a mutant, too, and is built anew for %s\n", m.Test, m.Name)
			alone = append(alone, m)
			continue
		}
		turns <- struct{}{}
		running.Go(func() {
			defer func() { <-turns }()
			begun := time.Now()
			r, failure := b.mutant(m, flags)
			mu.Lock()
			defer mu.Unlock()
			if failure != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", m.Name, failure))
				return
			}
			report(m, r, time.Since(begun))
		})
	}
	running.Wait()
	return alone, err
}

// failed finds the tests that failed, without their subtests.
var failed = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

// mutant runs the test of a mutant, by a second name of the binary, in a folder with the mutant's name.
func (b binary) mutant(m mutants.Mutant, flags []string) (row, error) {
	dir := filepath.Join(filepath.Dir(filepath.Dir(b.file)), m.Name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return row{}, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, filepath.Base(b.file))
	if err := os.Link(b.file, file); err != nil {
		return row{}, err
	}
	out, err := b.test(file, m.Test, flags)
	return verdictOf(m, out, err)
}

// test runs tests by a name of the binary, as go test does: in the folder of the package.
func (b binary) test(file, tests string, flags []string) ([]byte, error) {
	cmd := exec.CommandContext(b.ctx, file, append([]string{"-test.timeout=3m", "-test.run=^(" + tests + ")$"}, flags...)...)
	cmd.Dir = filepath.FromSlash(b.pkg)
	return outputOf(cmd)
}
