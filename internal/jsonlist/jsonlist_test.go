package jsonlist_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/jsonlist"
)

type row struct {
	Name string
	Keys []string
	May  map[string]bool
}

type place struct{ Links []string }

// self writes itself.
type self []string

func (s self) MarshalJSON() ([]byte, error) { return json.Marshal(len(s)) }

type page struct {
	place
	Rows    []row
	Absent  []row `json:",omitempty"`
	Zero    []row `json:",omitzero"`
	Nested  map[string][]row
	Any     any
	Pointer *row
	None    *row
	Pair    [2][]int
	At      time.Time
	Self    self
	Raw     json.RawMessage
	hidden  []row
}

// Each list and each map is there, wherever it is, and nothing else is changed (A316 in internal/proof/tested-failures.md).
func TestOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	shared := []row{{Name: "a"}}
	p := page{
		Rows: shared, Nested: map[string][]row{"x": nil, "y": {{Name: "b"}}}, Any: []any{row{Name: "c"}, nil, []int(nil)}, Pointer: &row{Name: "d"}, At: at,
		Raw: json.RawMessage("null"),
	}
	for name, tt := range map[string]struct {
		of   any
		want string
	}{
		"nothing":              {nil, `null`},
		"a list":               {[]int(nil), `[]`},
		"a map":                {map[string]int(nil), `{}`},
		"a number":             {7, `7`},
		"a pointer to nothing": {(*row)(nil), `null`},
		"a page": {p, `{"Links":[],"Rows":[{"Name":"a","Keys":[],"May":{}}],"Nested":{"x":[],"y":[{"Name":"b","Keys":[],"May":{}}]},` +
			`"Any":[{"Name":"c","Keys":[],"May":{}},null,[]],"Pointer":{"Name":"d","Keys":[],"May":{}},"None":null,"Pair":[[],[]],"At":"2026-07-01T00:00:00Z","Self":0,"Raw":null}`},
		"a pointer": {&place{}, `{"Links":[]}`},
	} {
		got, err := json.Marshal(jsonlist.Of(tt.of))
		require.NoError(t, err, name)
		require.Equal(t, tt.want, string(got), name)
	}
	require.Nil(t, shared[0].Keys, "others read it")
	require.Nil(t, p.Pointer.May)
	require.Nil(t, p.Nested["x"])
	require.Nil(t, p.hidden)
}
