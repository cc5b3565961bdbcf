package deptest

import (
	"go/ast"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	modelRule = regexp.MustCompile(`(?m)^#if.*\b(NO_[A-Z_]+)\)?(?:\s+/\* ((?:\w+\.)+\w+): )?`)
	modelRow  = regexp.MustCompile(`(?m)^\s*(NO_[A-Z_]+)\|(\w+)\|(\w+)\|(\w+)\|(.+)$`)
)

// modelBreaches holds the rules of the models to the functions of the product that
// they name, to the rows of the script that takes them out, and to the tables of the
// pages. What spin says of them only `make model` knows.
func modelBreaches(model, script, readme string, funcs map[string]bool) (found []string) {
	inModel, inScript := map[string]bool{}, map[string]bool{}
	for _, m := range modelRule.FindAllStringSubmatch(model, -1) {
		inModel[m[1]] = true
		if !funcs[m[2]] {
			found = append(found, m[1]+" names no function of the product: "+m[2])
		}
	}
	for _, m := range modelRow.FindAllStringSubmatch(script, -1) {
		inScript[m[1]] = true
		if !inModel[m[1]] {
			found = append(found, m[1]+" is no rule of the model")
		}
		fields := []string{m[1], m[2], m[4], m[3], m[3]} // as expected
		line := regexp.MustCompile(`(?m)^\s*` + strings.Join(fields, ` +`) + ` .* ` + regexp.QuoteMeta(m[5]) + `$`)
		if !line.MatchString(readme) {
			found = append(found, m[1]+" is not in the README's table as the script has it")
		}
	}
	for rule := range inModel {
		if !inScript[rule] {
			found = append(found, rule+" is never taken out")
		}
	}
	return found
}

// funcs names all functions that are not tests: package.Func or package.Type.Method.
func (tr *tree) funcs() map[string]bool {
	names := map[string]bool{}
	for _, f := range tr.files {
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || f.test {
				continue
			}
			name := d.Name.Name
			if d.Recv != nil {
				recv := d.Recv.List[0].Type
				if star, ok := recv.(*ast.StarExpr); ok {
					recv = star.X
				}
				if id, ok := recv.(*ast.Ident); ok {
					name = id.Name + "." + name
				}
			}
			names[f.pkg()+"."+name] = true
		}
	}
	return names
}

// TestModel holds docs/model to the product.
func TestModel(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile("../../../docs/model/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	models, tables := read("protocol.pml")+read("requests.pml"), read("README.md")+read("requests.md")
	for _, breach := range modelBreaches(models, read("run"), tables, repository(t).funcs()) {
		t.Error("docs/model: " + breach)
	}
}

// TestModelFails shows that a rule that differs from its row is found.
func TestModelFails(t *testing.T) {
	funcs := planted(t, map[string]string{
		"internal/commit/fence.go": "package commit\nfunc Swap() {}\nfunc (f *Fence) Create() {}\n",
	}).funcs()
	const (
		model  = "#ifdef NO_FENCE   /* commit.Fence.Create: it stands */\n#if defined(X) || defined(NO_SWAP) /* commit.Swap: it does */\n#ifdef SCENARIO\n"
		script = "\tNO_FENCE|all|leaks|L1|it stands\n\tNO_SWAP|all|fails|S6|it swaps\n"
		table  = "NO_FENCE  all  L1  leaks  leaks  7  0.1  181  it stands\nNO_SWAP  all  S6  fails  fails  7  0.1  181  it swaps\n"
	)
	for name, tt := range map[string]struct {
		model, script, table string
		breaches             int
	}{
		"good":          {model, script, table, 0},
		"no function":   {strings.ReplaceAll(model, "Fence.Create", "Fence.Make"), script, table, 1},
		"no comment":    {model + "#ifndef NO_SWAP\n", script, table, 1},
		"not in model":  {model, script + "\tNO_SWEEP|all|leaks|L1|it sweeps\n", table + "NO_SWEEP  all  L1  leaks  leaks  7  0.1  181  it sweeps\n", 1},
		"not in script": {model + "#ifdef NO_SWEEP /* commit.Swap: it sweeps */\n", script, table, 1},
		"not in table":  {model, script, table[:strings.Index(table, "NO_SWAP")], 1},
		"another rule":  {model, script, strings.ReplaceAll(table, "it swaps", "it stays"), 1},
		"unexpected":    {model, script, strings.ReplaceAll(table, "leaks  leaks", "leaks  holds"), 1},
	} {
		if got := modelBreaches(tt.model, tt.script, tt.table, funcs); len(got) != tt.breaches {
			t.Errorf("%s: breaches %q, want %d", name, got, tt.breaches)
		}
	}
}
