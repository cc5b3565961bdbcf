// Mutants takes one rule after the other out of the product and shows what notices.
//
//	go run ./internal/proof/mutants/cmd
//	go run ./internal/proof/mutants/cmd -only m04,l01 -seed 7
//	go run ./internal/proof/mutants/cmd -gate
//
// With -gate, only what .ci/run runs may notice: in place of the seeds of the chaos suite, that is its
// short form, TestChaos, or the test that the mutant names for it. The table goes to stdout. The exit status is 0 only if every mutant was noticed, by
// the checker or test that it names, within as many seeds as it says.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/etcdkit/etcdkit/internal/proof/mutants"
)

func main() {
	only := flag.String("only", "", "beginnings of names, separated by commas (default: all)")
	seed := flag.Uint64("seed", 1, "the first seed")
	gate := flag.Bool("gate", false, "count what .ci/run would notice: TestChaos in place of the seeds of the chaos suite")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	survivors, err := run(ctx, *only, *seed, *gate)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Printf("%d survived\n", survivors)
		os.Exit(1)
	}
}

// row is what became of one mutant.
type row struct {
	killed bool
	hung   bool // until the time of its test was over
	by     string
	seeds  int
}

func run(ctx context.Context, only string, seed uint64, gate bool) (survivors int, err error) {
	all, err := mutants.All()
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(m mutants.Mutant) bool { return !wanted(m.Name, only) })
	for i := range all {
		if m := &all[i]; gate && m.Test == "" {
			if m.Package, m.Test = m.Gate[0], m.Gate[1]; m.Test == "" {
				m.Package, m.Test = "./internal/proof/chaos", "TestChaos"
			}
		}
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%-28s %-4s %-9s %5s  %-44s %s\n", "mutant", "id", "", "seeds", "noticed by", "what it breaks")
	report := func(m mutants.Mutant, r row, took time.Duration) {
		verdict := "killed"
		switch {
		case r.hung:
			verdict = "hung"
		case !r.killed:
			verdict = "SURVIVED"
			survivors++
		}
		fmt.Printf("%-28s %-4s %-9s %5d  %-44s %s\n", m.Name, m.ID, verdict, r.seeds, r.by, m.Rule)
		fmt.Fprintf(os.Stderr, "mutants: %s took %.0f s\n", m.Name, took.Seconds())
	}
	alone, err := allTogether(ctx, all, dir, report)
	for _, m := range alone {
		begun := time.Now()
		r, failure := one(ctx, m, dir, seed)
		if ctx.Err() != nil {
			return survivors, ctx.Err()
		}
		if failure != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.Name, failure))
			continue
		}
		report(m, r, time.Since(begun))
	}
	return survivors, err
}

func wanted(name, only string) bool {
	return only == "" || slices.ContainsFunc(strings.Split(only, ","), func(p string) bool { return strings.HasPrefix(name, p) })
}

// one builds a mutant alone.
func one(ctx context.Context, m mutants.Mutant, dir string, seed uint64) (row, error) {
	overlay, err := m.Overlay(".", dir)
	if err != nil {
		return row{}, err
	}
	if m.Test != "" {
		return byTest(ctx, m, overlay)
	}
	binary := filepath.Join(dir, m.Name)
	if out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", binary, "./internal/proof/chaos/cmd").CombinedOutput(); err != nil {
		return row{}, fmt.Errorf("build: %w\n%s", err, out)
	}
	defer os.Remove(binary)
	var r row
	for r.seeds < m.Seeds && !r.killed {
		by, err := byChaos(ctx, m, binary, dir, seed+uint64(r.seeds))
		if err != nil {
			return row{}, err
		}
		r.seeds++
		r.killed = slices.Contains(by, m.Killer)
		r.by = cmp.Or(strings.Join(by, ", "), r.by)
	}
	return r, nil
}

// byChaos runs the suite once and returns the checkers that found fault.
func byChaos(ctx context.Context, m mutants.Mutant, binary, dir string, seed uint64) ([]string, error) {
	cmd := exec.CommandContext(ctx, binary, "-seed", fmt.Sprint(seed), "-for", m.For.String(), "-out", dir, "-nemeses", m.Nemeses, "-workloads", m.Workloads)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	var verdict struct {
		Verdict  string
		Findings []struct{ Checker string }
	}
	if jerr := json.Unmarshal(lastLine(out.Bytes()), &verdict); jerr != nil || verdict.Verdict == "" {
		return nil, fmt.Errorf("the suite returned no verdict: %w\n%s", errors.Join(err, jerr), log.String())
	}
	var by []string
	for _, f := range verdict.Findings {
		if verdict.Verdict == "red" && f.Checker != "" && !slices.Contains(by, f.Checker) {
			by = append(by, f.Checker)
		}
	}
	slices.Sort(by)
	return by, nil
}

func lastLine(b []byte) (last []byte) {
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		last = bytes.Clone(s.Bytes())
	}
	return last
}

// byTest runs one test and looks that it fails, and for no other reason than that it
// compiles and runs.
func byTest(ctx context.Context, m mutants.Mutant, overlay string) (row, error) {
	args := []string{"test", "-overlay", overlay, "-count=1", "-vet=off", "-timeout=3m", "-run", "^" + m.Test + "$", m.Package}
	rapid, err := usesRapid(ctx, m.Package)
	if err != nil {
		return row{}, err
	}
	if rapid {
		args = append(args, noFailFile)
	}
	out, err := outputOf(exec.CommandContext(ctx, "go", args...))
	return verdictOf(m, out, err)
}

// outputOf runs tests. A mutant may leave a process behind that writes to the same pipe: that is not waited for.
func outputOf(cmd *exec.Cmd) ([]byte, error) {
	cmd.WaitDelay = 2 * time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) { // they have passed
		return out, nil
	}
	return out, err
}

// noFailFile keeps rapid from leaving a file of what failed in the tree.
const noFailFile = "-rapid.nofailfile"

// verdictOf says what a run of a mutant's test shows: no other failure than that of the test counts, or that it never ended.
func verdictOf(m mutants.Mutant, out []byte, err error) (row, error) {
	r := row{seeds: 1, by: strings.TrimPrefix(m.Package, "./") + "." + m.Test}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return r, nil
	case errors.As(err, &exit) && bytes.Contains(out, []byte("--- FAIL: "+m.Test)):
		r.killed = true
		return r, nil
	case errors.As(err, &exit) && bytes.Contains(out, []byte("panic: test timed out")) && hangs(m.Test, out):
		r.killed, r.hung = true, true
		return r, nil
	}
	return row{}, fmt.Errorf("%w\n%s", err, out)
}

// hangs reports whether a test, or a part of it, is among those that ran when the time was over.
func hangs(test string, out []byte) bool {
	return bytes.Contains(out, []byte("\t"+test+" (")) || bytes.Contains(out, []byte("\t"+test+"/"))
}

// usesRapid reports whether the tests of a package have rapid's flags.
func usesRapid(ctx context.Context, pkg string) (bool, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{join .TestImports \"\\n\"}}\n{{join .XTestImports \"\\n\"}}", pkg).Output()
	if err != nil {
		return false, fmt.Errorf("imports of %s: %w", pkg, err)
	}
	return slices.Contains(strings.Split(string(out), "\n"), "pgregory.net/rapid"), nil
}
