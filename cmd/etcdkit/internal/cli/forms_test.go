package cli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The members of a form are those of all its values, also where it is part of another form.
func TestSchemas(t *testing.T) {
	forms := schemasIn(map[string]string{
		"a": "$ etcdkit a\n{\"schema\":\"as/v1\",\"all\":[{\"schema\":\"a/v1\",\"name\":\"x\",\"at\":\"2026-11-23T12:00:00Z\"}],\"more\":false}\n",
		"b": "{\"schema\":\"a/v1\",\"name\":\"x\",\"n\":1,\"parts\":[{\"k\":\"v\"},{\"l\":2}],\"words\":[\"w\"],\"none\":[]}\n{\"cut\":1}\n",
	})
	require.Len(t, forms, 2)
	require.Equal(t, "`all` list of `a/v1`, `more` true or false", forms["as/v1"].String())
	require.Equal(t, "`name`, `at` time, `n` number, `parts` list of {`k`, `l` number}, `words` list, `none` list", forms["a/v1"].String())
}

// The page of forms has the name of each member that the code prints, in one form at least: a member that
// no transcript shows is missed.
func TestSchemasAreWhole(t *testing.T) {
	documented, err := os.ReadFile(pageOfForms)
	require.NoError(t, err)
	var list strings.Builder
	for line := range strings.Lines(string(documented)) {
		if strings.HasPrefix(line, "- `etcdkit.") {
			list.WriteString(line)
		}
	}
	for _, file := range sources(t) {
		if strings.HasSuffix(file, "_test.go") || file == "permits/exit_file.go" { // whose table the text about the exit file has
			continue
		}
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, tag := range regexp.MustCompile("json:\"([a-z_0-9]+)").FindAllStringSubmatch(string(code), -1) {
			if tag[1] != "schema" {
				require.Contains(t, list.String(), "`"+tag[1]+"`", file)
			}
		}
	}
}
