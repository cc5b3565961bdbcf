package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// The gate runs each test once with etcd's floor: under the race detector, or, where that leaves out a
// package, a test or a part of one, without it. With another etcd it runs again what can differ there.

// pkg is a package that has tests.
type pkg struct {
	path    string // below the module, with "./" before it
	etcd    bool   // its test binary links etcd's client or server
	quiet   bool   // its test binary links the client alone, and no test of it sends an etcd anything, see asksNoEtcd
	through bool   // its code asks an etcd through public packages of ours alone, see asksThrough
}

func paths(all []pkg) (list []string) {
	for _, p := range all {
		list = append(list, p.path)
	}
	return list
}

// leftOut is a package that a target does not test, and why.
type leftOut struct{ path, why string }

// omission is a reason to leave packages out of a target.
type omission struct {
	why   string
	omits func(pkg) bool
}

// readers are packages whose tests read the tree and run no code of the product.
var readers = []string{"./internal/proof/deptest", "./internal/proof/gate", "./internal/proof/mutants"}

// judges are tools of the proofs whose tests judge records, files and other processes. The processes that they start are not
// raced by the detector in any case.
var judges = []string{
	"./compat", "./internal/proof/alertday", "./internal/proof/chaos/processes", "./internal/proof/mutants/cmd", "./internal/proof/night", "./internal/proof/pagecode",
	"./internal/proof/pagerun", "./internal/proof/procs", "./internal/proof/procs/stall", "./internal/proof/runbook", "./internal/proof/signals", "./internal/proof/soak", "./internal/proof/stored",
}

// commands are packages whose tests execute the command: under the race detector they take four times the processor time.
var commands = []string{"./cmd/etcdkit/internal/cli", "./cmd/etcdkit/internal/cli/cron"}

// exampleRoots are the folders of the examples and of what they share.
var exampleRoots = []string{"./examples", "./internal/examples"}

// unraced are the reasons to leave a package out of the target race.
var unraced = []omission{
	{"an example: make verify races its processes", func(p pkg) bool { return under(p.path, exampleRoots...) }},
	{"it reads the tree, and runs nothing of the product", func(p pkg) bool { return slices.Contains(readers, p.path) }},
	{"it judges what other processes do: make verify races it", func(p pkg) bool { return slices.Contains(judges, p.path) }},
	{"its tests execute one command each, and the packages that it calls are raced: make verify races it", func(p pkg) bool { return slices.Contains(commands, p.path) }},
	{"what it runs in virtual time is raced on a real etcd: make verify races it", func(p pkg) bool { return p.path == "./internal/proof/virtual" }},
}

var omissions = map[string][]omission{
	"race": unraced,
	"etcd37": {
		{"an example: make verify runs it with etcd 3.7", func(p pkg) bool { return under(p.path, exampleRoots...) }},
		{"it asks etcd nothing that concurrency, schedlock and idempotency do not: make verify runs it with etcd 3.7", func(p pkg) bool {
			return under(p.path, "./console", "./exporter", "./cmd/etcdkit") // the doctor asks through internal/doctor, which runs
		}},
		{"it judges what other processes do: make verify runs it with etcd 3.7", func(p pkg) bool {
			return slices.Contains(judges, p.path) || under(p.path, "./internal/proof/check", "./internal/proof/mistakes")
		}},
		{"its etcd is one of ours, in virtual time: make verify runs it with the client of etcd 3.7", func(p pkg) bool { return p.path == "./internal/proof/virtual" }},
		{"it links neither etcd's client nor its server", func(p pkg) bool { return !p.etcd }},
		{"no test of it asks an etcd, or names what is etcd's", func(p pkg) bool { return p.quiet }},
		{"its code names nothing of etcd, and asks it through public packages of ours: make verify runs it with etcd 3.7", func(p pkg) bool { return p.through }},
	},
	"test": {
		{"race runs it, and long its long tests: make verify runs it whole", raced},
	},
}

// raced reports whether the target race tests a package.
func raced(p pkg) bool {
	return !slices.ContainsFunc(unraced, func(o omission) bool { return o.omits(p) })
}

// under reports whether a path is one of the roots or below one.
func under(path string, roots ...string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return path == root || strings.HasPrefix(path, root+"/") })
}

// choose divides the packages into those that a target tests and those that it leaves out, in the
// order in which they are given.
func choose(target string, all []pkg) (run []string, out []leftOut) {
	for _, p := range all {
		i := slices.IndexFunc(omissions[target], func(o omission) bool { return o.omits(p) })
		if i < 0 {
			run = append(run, p.path)
		} else {
			out = append(out, leftOut{p.path, omissions[target][i].why})
		}
	}
	return run, out
}

// slowestFirst orders packages by how long they took in an earlier run, so that none of the long ones
// is alone at the end. Those of which nothing is known keep their order, behind the others.
func slowestFirst(paths, slow []string) []string {
	ordered := slices.Clone(paths)
	rank := func(path string) int {
		if i := slices.Index(slow, strings.TrimPrefix(path, "./")); i >= 0 {
			return i
		}
		return len(slow)
	}
	slices.SortStableFunc(ordered, func(a, b string) int { return rank(a) - rank(b) })
	return ordered
}

// tested lists the packages of this module that have tests.
func tested(ctx context.Context) ([]pkg, error) {
	out, err := listed(ctx)
	return testedOf(out), err
}

// listed has a line for each program and each test binary of this module: its path and what it links.
func listed(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-test", "-f", `{{if eq .Name "main"}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("list the packages: %w", err)
	}
	return string(out), nil
}

func testedOf(listed string) (all []pkg) {
	for line := range strings.Lines(listed) {
		name, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path, ok := strings.CutSuffix(name, ".test"); ok {
			path := "./" + short(path)
			etcd := linksEtcd(deps)
			all = append(all, pkg{path: path, etcd: etcd, quiet: etcd && asksNoEtcd(path, deps), through: etcd && asksThrough(path)})
		}
	}
	return all
}

// untestedOf are the programs without tests that link etcd: no test binary compiles them.
func untestedOf(listed string) (programs []string) {
	for line := range strings.Lines(listed) {
		name, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if path := "./" + short(name); !strings.HasSuffix(name, ".test") && linksEtcd(deps) && !slices.Contains(paths(testedOf(listed)), path) {
			programs = append(programs, path)
		}
	}
	return programs
}

func linksEtcd(deps string) bool {
	return strings.Contains(deps, "go.etcd.io/etcd/client/v3") || strings.Contains(deps, "go.etcd.io/etcd/server/v3")
}
