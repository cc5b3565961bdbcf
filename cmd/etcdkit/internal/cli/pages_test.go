package cli

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/proof/pagecode"
)

// parses reports what the command says of a call's verb, flags and number of arguments. Text may name a verb
// alone, without what it needs.
func parses(call pagecode.Call) error {
	root := tree()
	args := slices.DeleteFunc(slices.Clone(call.Words[1:]), func(arg string) bool { return arg == "…" })
	if len(args) > 0 && args[0] == "VERB" {
		return nil
	}
	verb, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	verb.InitDefaultHelpFlag()
	if err := verb.ParseFlags(rest); err != nil {
		return err
	}
	rest = verb.Flags().Args()
	if !verb.HasParent() && len(rest) > 0 {
		return fmt.Errorf("there is no verb %s", rest[0])
	}
	if call.Span && len(rest) == 0 || verb.Flags().Changed("help") {
		return nil
	}
	return verb.ValidateArgs(rest)
}

// Each call of the command on each page has a verb, flags and a number of arguments that it accepts. Design notes also
// name calls that were considered.
func TestPagesCalls(t *testing.T) {
	t.Parallel()
	calls := 0
	err := fs.WalkDir(os.DirFS("../../../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." {
			return fs.SkipDir
		}
		if path.Ext(name) != ".md" || strings.HasPrefix(name, "bin/") || strings.HasPrefix(name, "docs/design/") {
			return nil
		}
		page, err := os.ReadFile("../../../../" + name)
		require.NoError(t, err)
		for _, call := range pagecode.Parse(string(page)).Calls() {
			if call.Words[0] == "etcdkit" {
				calls++
				if err := parses(call); err != nil {
					t.Errorf("%s:%d: %s: %v", name, call.Line, strings.Join(call.Words, " "), err)
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, calls, 60)
}

// A call with a verb, a flag or an argument that the command does not have is found out.
func TestPagesCallsFail(t *testing.T) {
	t.Parallel()
	for line, fine := range map[string]bool{
		"etcdkit limit -N payments charge 5": true, "etcdkit limit -N payments": false, "etcdkit limits": false, "etcdkit limit charge --totals 5": false,
		"etcdkit ls": true, "etcdkit ls a b": false, "etcdkit jobs run backup --every 24h -- cmd --flag": true, "etcdkit jobs fly": false,
		"etcdkit run -N a b -- c | cat": true, "etcdkit run -N a b": false, "etcdkit": true, "etcdkit --flies": false, "etcdkit ls --help": true,
	} {
		if err := parses(pagecode.Parse("```sh\n" + line + "\n```\n").Calls()[0]); fine != (err == nil) {
			t.Errorf("%q: %v", line, err)
		}
	}
	for text, fine := range map[string]bool{"etcdkit limit": true, "etcdkit evict --force": true, "etcdkit evict --farce": false, "etcdkit limit a 1 2": false, "etcdkit fly": false} {
		if err := parses(pagecode.Parse("`" + text + "`\n").Calls()[0]); fine != (err == nil) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
