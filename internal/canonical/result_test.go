package canonical_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"reflect"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

type (
	shape interface{ Area() float64 }
	drawn struct {
		ID    string
		Shape shape
	}
	failing struct{ Err error }
	speaks  struct{ Sum int }
	spells  struct{ Sum int }
	receipt struct {
		ID string
		//lint:ignore U1000 it is not exported, and without a tag
		amount int
	}
	onPurpose struct {
		ID string
		//lint:ignore U1000 it is not exported, and left out by its tag
		mu  sync.Mutex `json:"-"`
		Err error      `json:"-"`
		_   [0]func()
	}
	inner        struct{ A int }
	embedsHidden struct{ *inner }
	embedsNamed  struct {
		*inner `json:"named"`
	}
	Inner         struct{ A int }
	embedsPointer struct{ *Inner }
	embedsValue   struct{ inner }
	link          struct{ Next *link }
	withAny       struct{ Any any }
	emptied       struct {
		L []int `json:",omitempty"`
	}
	quotedNumber struct {
		N int `json:",string"`
	}
	floats      map[float64]int
	money       struct{ Cents big.Int }
	timed       struct{ time.Time }
	timedHidden struct {
		time.Time
		//lint:ignore U1000 it is what is looked for
		note string
	}
)

func (speaks) MarshalJSON() ([]byte, error) { return []byte(`"spoken"`), nil }
func (spells) MarshalText() ([]byte, error) { return []byte("spelt"), nil }

// The type of a result shows most of what a replay would lose.
func TestTypesThatCannotBeReadBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		t    reflect.Type
		path string
	}{
		{reflect.TypeFor[shape](), "canonical_test.shape"},
		{reflect.TypeFor[error](), "error"},
		{reflect.TypeFor[drawn](), "canonical_test.drawn.Shape"},
		{reflect.TypeFor[[]*drawn](), "[].Shape"},
		{reflect.TypeFor[map[string]failing](), "[].Err"},
		{reflect.TypeFor[speaks](), "UnmarshalJSON"},
		{reflect.TypeFor[*speaks](), "UnmarshalJSON"},
		{reflect.TypeFor[struct{ S []spells }](), ".S[]"},
		{reflect.TypeFor[receipt](), "canonical_test.receipt.amount"},
		{reflect.TypeFor[stamped](), "Amount"},
		{reflect.TypeFor[both](), "credit.Amount"},
		{reflect.TypeFor[timedHidden](), "note"},
		{reflect.TypeFor[embedsHidden](), "inner"},
		{reflect.TypeFor[embedsNamed](), "inner"},
		{reflect.TypeFor[url.URL](), "User"},
		{reflect.TypeFor[chan int](), "chan int"},
		{reflect.TypeFor[struct{ F func() }](), ".F"},
		{reflect.TypeFor[complex64](), "complex64"},
		{reflect.TypeFor[floats](), "key of a map"},
		{reflect.TypeFor[map[spells]int](), "key of a map"},
	} {
		exact, err := canonical.CheckResult(tt.t)
		require.ErrorContains(t, err, tt.path, "%v, exact %v", tt.t, exact)
		_, again := canonical.CheckResult(tt.t)
		require.Equal(t, err, again)
	}
}

func TestTypesThatCanBeReadBack(t *testing.T) {
	t.Parallel()
	for typ, want := range map[reflect.Type]bool{
		reflect.TypeFor[string]():                 true,
		reflect.TypeFor[[]byte]():                 true,
		reflect.TypeFor[map[int8][]float32]():     true,
		reflect.TypeFor[[]*struct{ A, B *int }](): true,
		reflect.TypeFor[struct{}]():               true,
		reflect.TypeFor[[2][]struct{}]():          true,
		reflect.TypeFor[link]():                   false,
		reflect.TypeFor[embedsValue]():            true,
		reflect.TypeFor[time.Duration]():          true,
		reflect.TypeFor[any]():                    false,
		reflect.TypeFor[withAny]():                false,
		reflect.TypeFor[map[string]any]():         false,
		reflect.TypeFor[time.Time]():              false,
		reflect.TypeFor[timed]():                  false,
		reflect.TypeFor[money]():                  false,
		reflect.TypeFor[onPurpose]():              false,
		reflect.TypeFor[embedsPointer]():          false,
		reflect.TypeFor[emptied]():                false,
		reflect.TypeFor[quotedNumber]():           false,
		reflect.TypeFor[**int]():                  false,
		reflect.TypeFor[*[]int]():                 false,
		reflect.TypeFor[json.Number]():            false,
		reflect.TypeFor[json.RawMessage]():        false,
		reflect.TypeFor[map[netip.Addr]int]():     false,
	} {
		exact, err := canonical.CheckResult(typ)
		require.NoError(t, err, "%v", typ)
		require.Equal(t, want, exact, "%v", typ)
	}
}

// Of random types that are called exact, every value is read back as it was. -short has fewer types.
func TestExactTypesByReference(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	exact, other, rounds := 0, 0, 3000
	if testing.Short() {
		rounds = 600
	}
	for range rounds {
		typ := randomType(rnd, 3)
		is, err := canonical.CheckResult(typ)
		require.NoError(t, err, "%v", typ)
		if !is {
			other++
			continue
		}
		exact++
		for range 5 {
			v, back := reflect.New(typ), reflect.New(typ)
			fill(rnd, v.Elem())
			text, err := json.Marshal(v.Interface())
			require.NoError(t, err, "%v", typ)
			require.NoError(t, json.Unmarshal(text, back.Interface()), "%v: %s", typ, text)
			require.Equal(t, v.Interface(), back.Interface(), "%v: %s", typ, text)
		}
	}
	require.Greater(t, exact, rounds/6)
	require.Greater(t, other, rounds/6)
}

func randomType(rnd *rand.Rand, depth int) reflect.Type {
	leaves := []reflect.Type{
		reflect.TypeFor[int](), reflect.TypeFor[uint8](), reflect.TypeFor[string](), reflect.TypeFor[float32](),
		reflect.TypeFor[bool](), reflect.TypeFor[int64](),
	}
	if depth == 0 {
		return leaves[rnd.IntN(len(leaves))]
	}
	switch in := randomType(rnd, depth-1); rnd.IntN(6) {
	case 0:
		return reflect.PointerTo(in)
	case 1:
		return reflect.SliceOf(in)
	case 2:
		return reflect.MapOf(leaves[rnd.IntN(3)], in)
	case 3:
		return reflect.ArrayOf(rnd.IntN(3), in)
	}
	var fields []reflect.StructField
	for i := range 1 + rnd.IntN(3) {
		tags := []string{"", "", "n" + strconv.Itoa(i), ",omitempty", ",omitzero", ",string"}
		f := reflect.StructField{Name: "F" + strconv.Itoa(i), Type: randomType(rnd, depth-1)}
		if tag := tags[rnd.IntN(len(tags))]; tag != "" {
			f.Tag = reflect.StructTag(`json:"` + tag + `"`)
		}
		fields = append(fields, f)
	}
	return reflect.StructOf(fields)
}

// fill makes a random value, with nil, empty and zero ones among them.
func fill(rnd *rand.Rand, v reflect.Value) {
	some := rnd.IntN(3)
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(rnd.Uint64()) * int64(some))
	case reflect.Uint8:
		v.SetUint(uint64(rnd.IntN(256) * some))
	case reflect.Float32:
		v.SetFloat(rnd.NormFloat64() * float64(some))
	case reflect.Bool:
		v.SetBool(some > 0)
	case reflect.String:
		v.SetString([]string{"", "a<b>&\u2028\x00\"\\", "\ufffd 日本"}[some])
	case reflect.Pointer:
		if some > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(rnd, v.Elem())
		}
	case reflect.Slice:
		if some > 0 {
			v.Set(reflect.MakeSlice(v.Type(), some-1, some-1))
		}
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Map:
		if some == 0 {
			return
		}
		v.Set(reflect.MakeMap(v.Type()))
		for range some - 1 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(rnd, key)
			fill(rnd, value)
			v.SetMapIndex(key, value)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(rnd, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fill(rnd, v.Field(i))
		}
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b, path string
		differ     bool
	}{
		{`{"a":1,"b":[]}`, `{"b": [],"a":1}`, "", false},
		{`{"id":616581622363398142}`, `{"id":616581622363398100}`, ".id", true},
		{`{"l":[{"x":1},{"x":2}]}`, `{"l":[{"x":1},{"x":3}]}`, ".l[1].x", true},
		{`{"a":1}`, `{}`, ".a", true},
		{`{}`, `{"a":1}`, ".a", true},
		{`[1]`, `[1,2]`, "", true},
		{`{"a":{}}`, `{"a":[]}`, ".a", true},
		{`{"a":1,"a":2}`, `{"a":2}`, "", true},
		{`{"price":10.50}`, `{"price":10.5}`, "", false}, // as a provider has written it, in an interface
		{`[1,100,0.00,-1E-2]`, `[1.0,1e+2,0,-0.01]`, "", false},
		{`1`, `-1`, "", true},
		{`10`, `1`, "", true},
		{`0.1`, `0.01`, "", true},
		{`1e99999999999999999999`, `1`, "", true},
		{`["\\ufffd","\ufffd"]`, `["\\ufffd","` + "\ufffd" + `"]`, "", true},
		{`"\ufffd"`, `"` + "\ufffd" + `"`, "", true}, // it was written for bytes that are not UTF-8
		{`"` + "\ufffd" + `"`, `"\ufffd"`, "", false},
		{`"\u003c"`, `"<"`, "", false},
		{`1`, `x`, "", true},
	} {
		path, differ := canonical.Difference([]byte(tt.a), []byte(tt.b))
		require.Equal(t, fmt.Sprint(tt.path, tt.differ), fmt.Sprint(path, differ), "%s, %s", tt.a, tt.b)
	}
}
