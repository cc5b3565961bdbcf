package stored

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/record"
)

// types are those of the values that decoders read, by the same part of a key.
var types = map[string]any{
	"/notice/": record.Notice{}, "/stop/": record.Notice{}, "session/": record.Session{}, "sharing/": record.Session{},
	"request-id/": record.ID{}, "bucket/": record.Tokens{}, "/queue/": record.Request{}, "/limit": record.Limit{}, "/default": record.Limit{},
	"/run/": record.Run{}, "/lock": record.Lock{}, "/cooldown": record.Lock{}, "/settings": record.Settings{},
	"/pause": record.Pause{}, "/operation": record.Operated{}, "/run-request": record.RequestedRun{},
	"/plan": record.Plan{}, "/reported-loss": record.Reported{}, "jobs-of/": record.User{}, "clock/": record.Clock{},
	"/record/": record.Attempt{}, "change/": record.Change{},
}

// step is the key of the type of recovery points, which an attempt has below its record.
const step = "step"

// fieldsOfTypes returns the fields of all types, such as Run.earlier.error.
func fieldsOfTypes() map[string]bool {
	found := map[string]bool{}
	for _, r := range types {
		addFields(found, reflect.TypeOf(r).Name(), reflect.TypeOf(r))
	}
	addFields(found, step, reflect.TypeFor[record.Step]())
	return found
}

func addFields(to map[string]bool, path string, of reflect.Type) {
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		to[path+"."+name] = true
		inner := f.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			addFields(to, path+"."+name, inner)
		}
	}
}

// fieldsIn returns the fields that the values of records have.
func fieldsIn(t *testing.T, all []written) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, w := range all {
		if !strings.HasPrefix(w.Value, "{") {
			continue // a part, a timer or a floor
		}
		at := slices.IndexFunc(decoders, func(d decoder) bool { return strings.Contains(w.Key, d.part) })
		require.GreaterOrEqual(t, at, 0, w.Key)
		r := types[decoders[at].part]
		require.NotNil(t, r, decoders[at].part)
		head, body, _ := strings.Cut(w.Value, "\n")
		addValues(t, found, reflect.TypeOf(r).Name(), head)
		if _, ok := r.(record.Attempt); ok && strings.HasPrefix(body, "[") {
			addValues(t, found, step, body)
		}
	}
	return found
}

func addValues(t *testing.T, to map[string]bool, path, text string) {
	t.Helper()
	var tree any
	require.NoError(t, json.Unmarshal([]byte(text), &tree), text)
	var walk func(path string, node any)
	walk = func(path string, node any) {
		switch n := node.(type) {
		case map[string]any:
			for name, x := range n {
				to[path+"."+name] = true
				walk(path+"."+name, x)
			}
		case []any:
			for _, x := range n {
				walk(path, x)
			}
		}
	}
	walk(path, tree)
}

// absent returns the fields of all types that records do not have.
func absent(t *testing.T, all []written) []string {
	t.Helper()
	want := fieldsOfTypes()
	for name := range fieldsIn(t, all) {
		delete(want, name)
	}
	return slices.Sorted(maps.Keys(want))
}

var completeVersion = flag.String("complete", "", "the version, such as 0.2.0, whose golden records must have each field")

// TestRecordsHaveEachField is for the version that is released: `make release-check` names it.
func TestRecordsHaveEachField(t *testing.T) {
	if *completeVersion == "" {
		t.Skip("it reads the records of a version only with -complete")
	}
	require.Empty(t, absent(t, golden(t, *completeVersion)), "remove the folder of this version and write it again: make golden-records VERSION=%s", *completeVersion)
}

// A458: a full run writes each field of each record, so that golden records have them all. Until the release those of 0.1.0
// are as this tree writes them: they had been written before fields were added, which no test read.
func TestFullRunWritesEachField(t *testing.T) {
	t.Parallel()
	require.Empty(t, absent(t, fullRun(t, own(t))), "no full run writes them: add them to theRest")
	require.Contains(t, absent(t, golden(t, "0.1.0")[:1]), "Run.earlier.error")
	changelog, err := os.ReadFile("../../../CHANGELOG.md")
	require.NoError(t, err)
	if !strings.Contains(string(changelog), "\n## [0.1.0]") {
		require.Empty(t, absent(t, golden(t, "0.1.0")), "remove testdata/0.1.0 and write it again: make golden-records VERSION=0.1.0")
	}
}
