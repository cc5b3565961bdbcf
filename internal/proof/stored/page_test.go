package stored

import (
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/forms"
	"github.com/etcdkit/etcdkit/internal/record"
)

// row is one row of the table of keys.
type row struct {
	patterns []*regexp.Regexp
	texts    []string
	lease    string
}

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	part   = regexp.MustCompile(`<[a-z]+>`)
)

// rowsOf reads the table of keys of docs/storage.md.
func rowsOf(page string) (rows []row) {
	_, rest, _ := strings.Cut(page, "## Keys")
	table, _, _ := strings.Cut(rest, "\n## ")
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(line, "|")
		r := row{lease: strings.TrimSpace(cells[4])}
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			expr := strings.ReplaceAll(part.ReplaceAllString(regexp.QuoteMeta(m[1]), `[^/]+`), "…", ".+")
			r.patterns, r.texts = append(r.patterns, regexp.MustCompile("^"+expr+"$")), append(r.texts, m[1])
		}
		rows = append(rows, r)
	}
	return rows
}

// keyBreaches returns where the table and what was written differ.
func keyBreaches(page string, all []written) (found []string) {
	rows := rowsOf(page)
	seen := map[string]bool{}
	for _, w := range all {
		matched := false
		for _, r := range rows {
			for n, p := range r.patterns {
				if !p.MatchString(w.Key) {
					continue
				}
				matched, seen[r.texts[n]] = true, true
				if strings.HasPrefix(r.lease, "none") != (w.Lease == 0) && !strings.Contains(r.lease, "; ") {
					found = append(found, "the lease of "+patternOf(w)+" is not as the page says: "+r.lease)
				}
			}
		}
		if !matched {
			found = append(found, "no row has the key "+patternOf(w))
		}
	}
	for _, r := range rows {
		for _, text := range r.texts {
			if !seen[text] {
				found = append(found, "the row "+text+" was not seen in a full run")
			}
		}
	}
	return found
}

// values are the lines of the page about values, with their types.
var values = map[string]any{
	"Presence": record.Session{}, "Request": record.Request{}, "Limit": record.Limit{}, "ID": record.ID{}, "Notice": record.Notice{},
	"Tokens": record.Tokens{}, "Run": record.Run{}, "Lock": record.Lock{}, "Settings": record.Settings{}, "Pause": record.Pause{},
	"Operation": record.Operated{}, "Run request": record.RequestedRun{}, "Plan": record.Plan{}, "Jobs": record.User{},
	"Reported loss": record.Reported{}, "Clock": record.Clock{}, "Request record": record.Attempt{}, "Recovery points": record.Step{}, "Change": record.Change{},
}

// fieldsOf returns the names of a record's fields in JSON, and of those within them, without the version.
func fieldsOf(r reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(r) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || name == "v" {
			continue
		}
		names = append(names, name)
		within := f.Type
		if within.Kind() == reflect.Slice {
			within = within.Elem()
		}
		if within.Kind() == reflect.Struct {
			names = append(names, fieldsOf(within)...)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// valueBreaches returns where the page's fields and those of the records differ.
func valueBreaches(page string, values map[string]any) (found []string) {
	_, rest, _ := strings.Cut(page, "## Values")
	section, _, _ := strings.Cut(rest, "\n## ")
	known := map[string]bool{}
	for line := range strings.Lines(section) {
		name, text, ok := strings.Cut(strings.TrimPrefix(line, "- **"), "**")
		if !ok || !strings.HasPrefix(line, "- **") {
			continue
		}
		r, ok := values[name]
		if !ok {
			found = append(found, "no record is "+name)
			continue
		}
		known[name] = true
		fields, _, _ := strings.Cut(text, ".") // what follows is about what they contain
		var said []string
		for _, m := range quoted.FindAllStringSubmatch(fields, -1) {
			said = append(said, m[1])
		}
		is := fieldsOf(reflect.TypeOf(r))
		for _, field := range is {
			if !slices.Contains(said, field) {
				found = append(found, name+" has the field "+field+", and the page does not")
			}
		}
		for _, field := range said {
			if !slices.Contains(is, field) {
				found = append(found, "the page gives "+name+" the field "+field)
			}
		}
	}
	for name := range values {
		if !known[name] {
			found = append(found, "the page has no line for "+name)
		}
	}
	slices.Sort(found)
	return found
}

func storagePage(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/storage.md")
	require.NoError(t, err)
	return string(page)
}

// A194: each key that a full run writes has a row in docs/storage.md, with its lease, and each row is written.
func TestPageHasEachKey(t *testing.T) {
	t.Parallel()
	page, all := storagePage(t), fullRun(t, own(t))
	require.Empty(t, keyBreaches(page, all))
	require.Equal(t, []string{"no row has the key zzz/x (lease false)"}, keyBreaches(page, append(all, written{Key: "zzz/x"})))
	planted := strings.Replace(page, "| `clock/<lease>`", "| `clocks/<lease>`", 1)
	require.Contains(t, strings.Join(keyBreaches(planted, all), "\n"), "the row clocks/<lease> was not seen")
	planted = strings.Replace(page, "| `semaphore/<name>/limit` | the limit of a semaphore | the first call for a permit, and `SetLimit` | none", "| `semaphore/<name>/limit` | | | the session's", 1)
	require.Contains(t, strings.Join(keyBreaches(planted, all), "\n"), "the lease of semaphore/charge/limit (lease false) is not as the page says")
}

// A194: each field of each value is on the page, and no other.
func TestPageHasEachField(t *testing.T) {
	t.Parallel()
	page := storagePage(t)
	require.Empty(t, valueBreaches(page, values))
	require.Equal(t, []string{"Clock has the field at, and the page does not", "the page gives Clock the field att"},
		valueBreaches(strings.Replace(page, "- **Clock**: `owner`, `at`", "- **Clock**: `owner`, `att`", 1), values))
	require.NotEmpty(t, valueBreaches(page, map[string]any{}))
	require.Contains(t, fieldsOf(reflect.TypeFor[record.Limit]()), "per_second")
}

// A397: the page has each record that has an encoder, with the fields within fields, which are reserved like all others, and the
// forms of results. It left out the list of changes.
func TestPageHasEachRecord(t *testing.T) {
	t.Parallel()
	for _, d := range decoders {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Values(values)), func(r any) bool { return reflect.TypeOf(r) == d.of }), d.of)
	}
	page := storagePage(t)
	for _, form := range []string{forms.ResponseMagic, strings.TrimSuffix(string(forms.Call{}.Encode()), "0 -\n")} {
		require.Contains(t, page, "`"+form+"`")
	}
}
