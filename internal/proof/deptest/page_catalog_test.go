package deptest

import (
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// A catalog has what a reader can type: the targets and variables of the Makefile, the packages, tests and
// flags of all modules, and the verbs of etcd's tools.
type catalog struct {
	makefile string
	root     fs.FS
	modules  map[string]*tree  // by folder, with a slash behind it
	versions map[string]string // of the modules that pages name
	verbs    map[string][]string
}

// otherPrograms are not ours, and their calls are not checked: each with the reason.
var otherPrograms = map[string]string{
	"systemctl": "the runbook's machines have it; make runbook plays it",
	"ssh":       "make runbook plays it, and runs what it is given",
	"scp":       "make runbook plays it",
	"openssl":   "make runbook runs it",
	"mkdir":     "of the shell", "cat": "of the shell", "awk": "of the shell", "printf": "of the shell", "sleep": "of the shell", "cd": "of the shell",
	"rm": "of the shell", "mv": "of the shell", "echo": "of the shell", "sed": "of the shell", "grep": "of the shell", "source": "of the shell",
	"install": "of the shell", "wc": "of the shell", "tee": "of the shell", "cut": "of the shell", "sort": "of the shell", "tail": "of the shell",
	"head": "of the shell", "chmod": "of the shell",
	"curl": "TestMetricsByCurl of internal/proof/pagerun",
	// Each line is parsed by the command itself, in TestPagesCalls of cmd/etcdkit/internal/cli.
	"etcdkit": "TestPagesCalls",
}

// typed reports why a reader who types a call gets no result, but for otherPrograms.
func (c *catalog) typed(call pagecode.Call) error {
	args := call.Words[1:]
	switch program := call.Words[0]; program {
	case "make":
		return c.make(args)
	case "go":
		return c.goes(args)
	case "docker":
		return c.docker(args)
	case "etcdctl", "etcdutl":
		return c.etcdTool(program, args)
	case "etcdkit-dev":
		return c.flags(args, "cmd/etcdkit-dev")
	case "docs/model/run":
		_, err := fs.Stat(c.root, program)
		return err
	default:
		if name, ok := strings.CutPrefix(program, "bin/"); ok {
			if dirs := built.FindAllStringSubmatch(c.makefile, -1); !slices.ContainsFunc(dirs, func(m []string) bool { return path.Base(m[2]) == name }) {
				return fmt.Errorf("no target of the Makefile builds %s", program)
			}
			return nil
		}
		if otherPrograms[program] == "" {
			return fmt.Errorf("%s is no program that pages may name: see otherPrograms", program)
		}
		return nil
	}
}

var (
	variable = regexp.MustCompile(`^([A-Z]+)=(.*)$`)
	recipe   = `(?m)^%s:(?:.*##.*)?((?:\n\t.*)*)`
	built    = regexp.MustCompile(`go (?:-C (\S+) )?(?:build -o \S+|run) (\./\S*|\.)`)
)

// make checks targets and variables, and flags in ARGS by the program that the target builds.
func (c *catalog) make(args []string) error {
	var targets, given []string
	vars := map[string]string{}
	for _, arg := range args {
		if m := variable.FindStringSubmatch(arg); m == nil {
			targets = append(targets, arg)
		} else if !regexp.MustCompile(`[( "]` + m[1] + `[):=]`).MatchString(c.makefile) {
			return fmt.Errorf("the Makefile has no variable %s", m[1])
		} else if vars[m[1]] = m[2]; m[1] == "ARGS" && strings.HasPrefix(m[2], "-") {
			given = strings.Fields(m[2])
		}
	}
	for _, target := range targets {
		lines, ok := c.recipeOf(target)
		if !ok {
			return fmt.Errorf("the Makefile has no target %s", target)
		}
		if vars["TESTFLAGS"] != "" {
			if err := c.testsOf(target, vars); err != nil {
				return err
			}
		}
		for _, program := range built.FindAllStringSubmatch(lines, -1) {
			if path.Base(program[2]) == "gate" || given == nil {
				continue
			}
			if err := c.flags(given, path.Join(program[1], program[2])); err != nil {
				return err
			}
		}
	}
	return nil
}

// recipeOf returns the lines of a target, whose rule may be beside rules that set variables of it.
func (c *catalog) recipeOf(target string) (lines string, ok bool) {
	for _, m := range regexp.MustCompile(fmt.Sprintf(recipe, regexp.QuoteMeta(target))).FindAllStringSubmatch(c.makefile, -1) {
		lines, ok = lines+m[1], true
	}
	return lines, ok
}

// goes checks the calls of the go command that pages have.
func (c *catalog) goes(args []string) error {
	in := ""
	if len(args) > 2 && args[1] == "-C" { // go run -C demos
		in, args = args[2], append(args[:1:1], args[3:]...)
	}
	switch {
	case len(args) == 0:
		return errors.New("go without a verb")
	case args[0] == "run" && len(args) > 1:
		return c.flags(args[2:], path.Join(in, args[1]))
	case args[0] == "test":
		return c.test(args[1:], in)
	case args[0] == "doc" && len(args) > 1:
		return c.doc(args[1])
	case args[0] == "install" && len(args) > 1:
		dir, _, _ := strings.Cut(args[1], "@")
		if of, ok := ours(dir); ok {
			dir = of
		}
		if !c.main(dir) {
			return fmt.Errorf("there is no program %s", args[1])
		}
	case args[0] == "get" && len(args) > 1:
		name, version, _ := strings.Cut(args[1], "@")
		if c.versions[name] != version {
			return fmt.Errorf("%s is tested with %q, not with %s", name, c.versions[name], version)
		}
	case !slices.Contains([]string{"doc", "get", "mod", "env", "build", "vet", "list"}, args[0]):
		return fmt.Errorf("go %s is not known here", args[0])
	}
	return nil
}

// files returns those of a folder, in whichever module.
func (c *catalog) files(dir string) (all []file) {
	for prefix, tr := range c.modules {
		for _, f := range tr.files {
			if path.Join(prefix, f.dir) == path.Clean(dir) {
				all = append(all, f)
			}
		}
	}
	return all
}

func (c *catalog) main(dir string) bool {
	return slices.ContainsFunc(c.files(dir), func(f file) bool { return f.ast.Name.Name == "main" })
}

// flags checks that a program exists, and has the flags among args, or takes them from what the examples share.
func (c *catalog) flags(args []string, dir string) error {
	if !c.main(dir) {
		return fmt.Errorf("there is no program %s", dir)
	}
	known := map[string]bool{"help": true, "h": true}
	for _, d := range []string{dir, "internal/examples/program", "internal/examples/metrics", "internal/examples/cluster", "internal/etcdflags"} {
		for _, f := range c.files(d) {
			maps.Copy(known, flagsIn(f.ast))
		}
	}
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if strings.HasPrefix(arg, "./") {
			break // what follows is for go test
		}
		if strings.HasPrefix(arg, "-") && !known[name] {
			return fmt.Errorf("%s has no flag -%s", dir, name)
		}
	}
	return nil
}

// flagsIn returns the names of the flags that a file defines.
func flagsIn(f *ast.File) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok && definesFlag.MatchString(s.Sel.Name) {
			at := 0
			if strings.HasSuffix(s.Sel.Name, "Var") {
				at = 1
			}
			if name, ok := call.Args[at].(*ast.BasicLit); ok && name.Kind == token.STRING {
				text, _ := strconv.Unquote(name.Value)
				names[text] = true
			}
		}
		return true
	})
	return names
}

var definesFlag = regexp.MustCompile(`^(?:(?:String|Bool|Int|Int64|Uint|Uint64|Float64|Duration|Text)?Var|String|Bool|Int|Int64|Uint|Uint64|Float64|Duration|Func|BoolFunc)$`)

// test checks that the packages exist, and that they have a test that -run selects.
func (c *catalog) test(args []string, in string) error {
	var dirs []string
	run := ""
	for i, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case name == "-run" && value != "", name == "-bench" && value != "":
			run = value
		case strings.HasPrefix(arg, "./"):
			dirs = append(dirs, arg)
		case i > 0 && (args[i-1] == "-run" && run == "" || args[i-1] == "-bench"): // -run ^$ -bench X
			run = arg
		}
	}
	pattern, err := regexp.Compile(cmp.Or(run, "."))
	if err != nil {
		return err
	}
	if len(dirs) == 0 {
		return nil // in the folder in which the reader is
	}
	for _, dir := range dirs {
		if !slices.ContainsFunc(c.matching(dir, in), func(f file) bool {
			return slices.ContainsFunc(f.ast.Decls, func(d ast.Decl) bool {
				names := declared(d)
				return len(names) == 1 && isTest.MatchString(names[0]) && pattern.MatchString(names[0])
			})
		}) {
			return fmt.Errorf("%s has no test %s", path.Join(in, dir), run)
		}
	}
	return nil
}

// matching returns the files of the packages that a pattern such as ./a or ./a/... matches in a module.
func (c *catalog) matching(pattern, in string) (all []file) {
	root, below := strings.CutSuffix(pattern, "...")
	if !below {
		return c.files(path.Join(in, pattern))
	}
	tr := c.modules[strings.TrimPrefix(in+"/", "/")]
	if tr == nil {
		return nil
	}
	for _, f := range tr.files {
		if root = path.Clean(root); root == "." || within(f.dir, root) {
			all = append(all, f)
		}
	}
	return all
}

// testsOf checks a call of make that says with TESTFLAGS which tests a target runs, of which packages.
func (c *catalog) testsOf(target string, given map[string]string) error {
	lines, _ := c.recipeOf(target)
	calls := goTest.FindAllStringSubmatch(lines, -1)
	i := slices.IndexFunc(calls, func(call []string) bool { return strings.Contains(call[2], "$(TESTFLAGS)") })
	if i < 0 {
		return fmt.Errorf("make %s runs no go test with TESTFLAGS", target)
	}
	call := calls[i]
	dirs := "./..."
	if strings.Contains(call[2], "$(PKGS)") {
		dirs = cmp.Or(given["PKGS"], dirs)
	}
	return c.test(append(strings.Fields(given["TESTFLAGS"]), strings.Fields(dirs)...), call[1])
}

var isTest = regexp.MustCompile(`^(?:Test|Example|Fuzz|Benchmark)`)

// doc checks that a package of ours has what a reader looks up: a package, or pkg.Symbol, or pkg.Type.Method.
func (c *catalog) doc(symbol string) error {
	dir, rest, _ := strings.Cut(symbol[strings.LastIndex(symbol, "/")+1:], ".")
	names := map[string]bool{"": true}
	found := false
	for _, f := range c.modules[""].files {
		if f.test || path.Base(f.dir) != dir || !within(f.dir, public...) {
			continue
		}
		found = true
		for _, d := range f.ast.Decls {
			for _, name := range declared(d) {
				names[name] = true
			}
		}
	}
	if !found || !names[rest] {
		return fmt.Errorf("no package has %s", symbol)
	}
	return nil
}

// declared returns the names that a declaration adds to a package, methods behind their type.
func declared(d ast.Decl) (all []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		of := d.Recv.List[0].Type
		if p, ok := of.(*ast.StarExpr); ok {
			of = p.X
		}
		if id, ok := of.(*ast.Ident); ok {
			return []string{id.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				all = append(all, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					all = append(all, id.Name)
				}
			}
		}
	}
	return all
}

// docker checks that the file of docker compose exists.
func (c *catalog) docker(args []string) error {
	i := slices.Index(args, "-f")
	if len(args) == 0 || args[0] != "compose" || i < 0 || i+1 >= len(args) {
		return errors.New("only docker compose -f FILE is known here")
	}
	_, err := fs.Stat(c.root, args[i+1])
	return err
}

// etcdTool checks the verb and the flags of a call of etcdctl or etcdutl.
func (c *catalog) etcdTool(program string, args []string) error {
	for n := min(len(args), 2); n > 0; n-- {
		verb := program + " " + strings.Join(args[:n], " ")
		flags, ok := c.verbs[verb]
		if !ok {
			continue
		}
		for _, arg := range args[n:] {
			if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(arg, "-") && !slices.Contains(flags, name) {
				return fmt.Errorf("%s has no flag %s", verb, name)
			}
		}
		return nil
	}
	return fmt.Errorf("%s has no verb %q", program, strings.Join(args, " "))
}

// etcdVerbs reads the table of verbs, as testdata/etcdctl.txt has it: the version, and on each line a verb and its flags.
func etcdVerbs(table string) (version string, verbs map[string][]string) {
	version, table, _ = strings.Cut(table, "\n")
	verbs = map[string][]string{}
	for line := range strings.Lines(table) {
		verb, flags, _ := strings.Cut(strings.TrimSpace(line), ":")
		verbs[verb] = strings.Fields(flags)
	}
	return strings.TrimPrefix(version, "# "), verbs
}
