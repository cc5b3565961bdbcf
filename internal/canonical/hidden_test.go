package canonical_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

type (
	stamped struct {
		time.Time
		Amount int
	}
	stampedBy[T any] struct {
		*time.Time
		By T
	}
	from struct {
		netip.Addr // has MarshalText
		Amount     int
	}
	counted struct {
		big.Int // has MarshalJSON, of the pointer
		Amount  int
	}
	spoken struct {
		json.Marshaler
		Amount int
	}
	deeper struct {
		stamped
		note string
	}
	outTagged struct {
		time.Time `json:"-"`
		Amount    int
	}
	twoVoices struct { // neither method is promoted, and neither says anything
		time.Time
		netip.Addr
		Amount int
	}
	pointerOnly struct {
		time.Time
		Amount int
	}
	debit  struct{ Amount int }
	credit struct{ Amount int }
	both   struct {
		debit
		credit
	}
	shadowed struct {
		debit
		Amount int
	}
	tagged struct {
		debit
		*credit
		Sum int `json:"Amount"`
	}
	oddTag struct {
		//lint:ignore SA5008 that is what it is for
		X int `json:"a\\b"` // no name that JSON takes
		Y int `json:"X"`
	}
	diamond struct {
		left
		right
	}
	left  struct{ debit }
	right struct{ debit }
	chain struct {
		*chain
		Amount int
	}
)

func (*pointerOnly) MarshalJSON() ([]byte, error) { return []byte(`"all of it"`), nil }

// What a type leaves out of its JSON, because of what it embeds, would not count: two amounts
// would be one payload. So it is refused, with the type and the field, wherever it is, and
// whatever the values are.
func TestTypesThatHideFields(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	number := reflect.TypeFor[int]()
	twice := reflect.StructOf([]reflect.StructField{{Name: "A", Type: number, Tag: `json:"x"`}, {Name: "B", Type: number, Tag: `json:"x,omitempty"`}})
	for name, tt := range map[string]struct {
		payload    any
		type_, fld string
	}{
		"a promoted method":               {stamped{now, 100}, "canonical_test.stamped", "Amount"},
		"its zero value":                  {stamped{}, "canonical_test.stamped", "Amount"},
		"a pointer to it":                 {&stamped{now, 100}, "canonical_test.stamped", "Amount"},
		"a nil pointer to it":             {(*stamped)(nil), "canonical_test.stamped", "Amount"},
		"of an embedded pointer, generic": {stampedBy[string]{&now, "x"}, "stampedBy", "By"},
		"MarshalText":                     {from{netip.MustParseAddr("::1"), 100}, "canonical_test.from", "Amount"},
		"of the pointer":                  {&counted{*big.NewInt(1), 100}, "canonical_test.counted", "Amount"},
		"of the pointer, by value":        {counted{*big.NewInt(1), 100}, "canonical_test.counted", "Int"},
		"of an embedded interface":        {spoken{json.RawMessage("1"), 100}, "canonical_test.spoken", "Amount"},
		"promoted twice":                  {deeper{stamped{now, 100}, "x"}, "canonical_test.stamped", "Amount"},
		"left out by its tag":             {outTagged{now, 100}, "canonical_test.outTagged", "Amount"},
		"an anonymous type": {struct {
			time.Time
			Amount int
		}{now, 100}, "struct {", "Amount"},
		"two methods":                      {twoVoices{now, netip.Addr{}, 100}, "canonical_test.twoVoices", "Time"},
		"a method that is not called":      {pointerOnly{now, 100}, "canonical_test.pointerOnly", "Time"},
		"in a list":                        {[]stamped{{now, 100}}, "canonical_test.stamped", "Amount"},
		"in an empty list":                 {[]stamped{}, "canonical_test.stamped", "Amount"},
		"in a map":                         {map[string]*stamped{}, "canonical_test.stamped", "Amount"},
		"in a field":                       {struct{ At []*stamped }{}, "canonical_test.stamped", "Amount"},
		"in an interface":                  {[]any{1, map[string]any{"at": stamped{now, 100}}}, "canonical_test.stamped", "Amount"},
		"in an interface that marshals":    {struct{ json.Marshaler }{stamped{now, 100}}, "canonical_test.stamped", "Amount"},
		"one name in two embedded structs": {both{debit{100}, credit{5}}, "canonical_test.both", "credit.Amount"},
		"a name of the outer one":          {shadowed{debit{100}, 5}, "canonical_test.shadowed", "Amount"},
		"a name by a tag":                  {tagged{debit{100}, &credit{5}, 7}, "canonical_test.tagged", "Amount"},
		"one tag twice":                    {reflect.Zero(twice).Interface(), "struct {", "A or B"},
		"a tag that is none":               {oddTag{1, 2}, "canonical_test.oddTag", "Y"},
		"one struct by two ways":           {diamond{left{debit{1}}, right{debit{2}}}, "canonical_test.diamond", "right.debit.Amount"},
		"one that embeds itself":           {chain{&chain{nil, 100}, 5}, "canonical_test.chain", "chain"},
	} {
		b, err := canonical.Value(tt.payload)
		require.Error(t, err, "%s: %s", name, b)
		require.ErrorContains(t, err, tt.type_, name)
		require.ErrorContains(t, err, tt.fld, name)
		again := fmt.Sprint(err)
		_, err = canonical.Value(tt.payload)
		require.EqualError(t, err, again, name)
	}
}

type (
	said struct {
		time.Time
		Amount int
	}
	saidByPointer[T any] struct {
		time.Time
		Amount T
	}
	alone struct {
		time.Time
		//lint:ignore U1000 fields that JSON does not know are no hidden ones
		mu sync.Mutex
		//lint:ignore U1000 as above
		note string
		sync.Once
		Log func() `json:"-"`
	}
	base   struct{ ID string }
	order2 struct {
		*base
		debit  `json:"debit"`
		credit `json:"credit"`
		At     time.Time
		Next   *order2 `json:",omitempty"`
		hidden stamped
		Left   stamped `json:"-"`
		//lint:ignore SA5008 a field of the name "-"
		Dash int `json:"-,"`
	}
)

func (s said) MarshalJSON() ([]byte, error) { return json.Marshal([]any{s.Time, s.Amount}) }

func (s *saidByPointer[T]) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{s.Time, s.Amount})
}

// A method of the type's own is trusted; what is left out on purpose, or is not exported, does not
// count; nor does embedding hide anything by itself.
func TestTypesThatHideNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0).UTC()
	for name, tt := range map[string]struct {
		payload any
		want    string
	}{
		"a method of its own":         {[]said{{now, 100}}, `[["1970-01-01T00:00:01Z",100]]`},
		"one of the pointer":          {&saidByPointer[int]{now, 100}, `["1970-01-01T00:00:01Z",100]`},
		"a promoted one, of all":      {&alone{Time: now}, `"1970-01-01T00:00:01Z"`},
		"embedded, under other names": {order2{base: &base{"x"}, debit: debit{1}, At: now, hidden: stamped{Amount: 1}}, `{"-":0,"At":"1970-01-01T00:00:01Z","ID":"x","credit":{"Amount":0},"debit":{"Amount":1}}`},
	} {
		got, err := canonical.Value(tt.payload)
		require.NoError(t, err, name)
		want, err := canonical.JSON([]byte(tt.want))
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

// Of random types it says what encoding/json does: a type is refused if and only if a value of it
// has a field that is not in its JSON.
func TestHiddenFieldsByReference(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	names, tags := []string{"A", "B", "C"}, []string{"", "", "A", "b", `a\\b`, ",omitempty", "-,"}
	var typ func(depth int) reflect.Type
	typ = func(depth int) reflect.Type {
		var fields []reflect.StructField
		for n, at := range rnd.Perm(len(names))[:1+rnd.IntN(len(names))] {
			f := reflect.StructField{Name: names[at], Type: reflect.TypeFor[int]()}
			if depth > 0 && rnd.IntN(2) == 0 {
				f.Name, f.Type, f.Anonymous = "E"+strconv.Itoa(n), typ(depth-1), rnd.IntN(4) > 0
				if rnd.IntN(2) == 0 {
					f.Type = reflect.PointerTo(f.Type)
				}
			}
			if tag := tags[rnd.IntN(len(tags))]; tag != "" {
				f.Tag = reflect.StructTag(`json:"` + tag + `"`)
			}
			fields = append(fields, f)
		}
		return reflect.StructOf(fields)
	}
	leaves := 0
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Int:
			leaves++
			v.SetInt(int64(1000 + leaves))
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		}
	}
	refused := 0
	const many = 2000
	for range many {
		v := reflect.New(typ(3))
		leaves = 0
		fill(v.Elem())
		b, err := json.Marshal(v.Interface())
		require.NoError(t, err)
		missing := false
		for n := range leaves {
			missing = missing || !strings.Contains(string(b), strconv.Itoa(1001+n))
		}
		_, err = canonical.Value(v.Interface())
		require.Equal(t, missing, err != nil, "%v: %s: %v", v.Type(), b, err)
		if err != nil {
			refused++
		}
	}
	require.Greater(t, refused, many/20)
	require.Less(t, refused, many*19/20)
}
