package integration

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency"
)

// laterOr are the errors of package idempotency that another delivery may not meet, or that Do does not return.
var laterOr = []string{
	"ErrClosed", "ErrInProgress", "ErrNearQuota", "ErrScopeFull", "ErrUnseen", "ErrConflict", "ErrNotRecorded", "ErrFenced",
	"ErrLost", "ErrTooLong", "ErrSettled",
	"ErrAlive", "ErrNotFound", // of calls of an operator
}

// A704: the table for consumers has each error of Do that another delivery meets again, also those that a function passes on, and
// the example puts the same ones aside.
func TestQueueTableHasEachLastingError(t *testing.T) {
	page, err := os.ReadFile("../docs/integrations.md")
	require.NoError(t, err)
	_, table, ok := strings.Cut(string(page), "| result of `Do` |")
	require.True(t, ok)
	table, _, _ = strings.Cut(table, "\n\n")
	var aside []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Err\\w+)`[^|]*\\| (?:Put the message into|The same)").FindAllStringSubmatch(table, -1) {
		aside = append(aside, row[1])
	}
	example, err := os.ReadFile("example_watermill_test.go")
	require.NoError(t, err)
	_, list, ok := strings.Cut(string(example), "func hopeless(")
	require.True(t, ok)
	list, _, _ = strings.Cut(list, "} {")
	var hopeless []string
	for _, name := range regexp.MustCompile(`idempotency\.(Err\w+)`).FindAllStringSubmatch(list, -1) {
		hopeless = append(hopeless, name[1])
	}
	require.ElementsMatch(t, aside, hopeless)
	require.ElementsMatch(t, exportedErrors(t, "../idempotency/errors.go"), slices.Concat(aside, laterOr))
}

// exportedErrors returns the names of the variables Err… of a file.
func exportedErrors(t *testing.T, file string) []string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	found := map[string]bool{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			for _, name := range v.Names {
				if strings.HasPrefix(name.Name, "Err") {
					found[name.Name] = true
				}
			}
		}
		return true
	})
	return slices.Collect(maps.Keys(found))
}

// A704: a step above 512 KiB has run and is not recorded. Each delivery of its message runs it again, so the message is put
// aside.
func TestMessageWhoseStepIsTooLarge(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := openShop(ctx)
	defer s.stop()
	st := must(idempotency.NewStore(s.first, "orders", &idempotency.Options{SingleTenant: true}))
	runs := 0
	for range 2 {
		_, err := idempotency.Do(ctx, st, idempotency.Key{Op: "orders", ID: "large"}, nil, func(_ context.Context, a *idempotency.Attempt) (string, error) {
			return idempotency.Step(a, "report", func(context.Context) (string, error) {
				runs++
				return strings.Repeat("x", 600<<10), nil
			})
		})
		require.ErrorIs(t, err, idempotency.ErrTooLarge)
		require.True(t, hopeless(err))
	}
	require.Equal(t, 2, runs)
}
