package cli

import (
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
