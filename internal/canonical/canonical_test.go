package canonical_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

// hidden has no field that JSON has.
type hidden struct{ amount int }

type order struct {
	sync.Mutex
	ID   string
	note any // left out, as everywhere
}

// upload says something of itself, and not what it reads.
type upload struct {
	Name string
	text string
}

func (u *upload) Read(b []byte) (int, error) { return copy(b, u.text), io.EOF }

type node struct {
	Value any
	Next  *node `json:",omitempty"`
}

func sum(v any) (canonical.Sum, error) {
	if raw, ok := v.(json.RawMessage); ok {
		return canonical.JSON(raw)
	}
	return canonical.Value(v)
}

// What encoding/json would take for the same although it is not, is refused: the second of two
// such payloads would be taken for the first.
func TestWhatCannotBeCompared(t *testing.T) {
	t.Parallel()
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for name, payload := range map[string]any{
		"name twice":              raw(`{"amount":1,"amount":1000}`),
		"name twice, escaped":     raw(`{"amount":1,"\u0061mount":1000}`),
		"name twice, deeper":      raw(`[{"a":[{"b":{"c":1,"c":2}}]}]`),
		"name twice, in a struct": struct{ Body json.RawMessage }{raw(`{"a":1,"a":2}`)},
		"no JSON":                 raw("{"), "two texts": raw("1 2"), "nothing": raw(""), "too deep": raw(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)),
		"no UTF-8":              raw("{\"to\":\"\xfe\"}"),
		"no UTF-8, a name":      raw("{\"\xfe\":1}"),
		"no UTF-8, in a struct": struct{ Body json.RawMessage }{raw("\"\xfe\"")},
		"no UTF-8, a string":    struct{ To string }{"\xfe"},
		"no UTF-8, a key":       map[string]int{"\xfe": 1},
		"no UTF-8, in a slice":  []any{[]string{"x", "\xfe"}},
		"half a character":      raw(`{"to":"\ud800"}`),
		"the other half":        raw(`"\udc00"`),
		"two first halves":      raw(`"\ud800\ud800"`),
		"half, then another":    raw(`"\ud83dA"`),
		"half, at the end":      raw(`"x\\\ud83d"`),
		"a reader":              strings.NewReader("pay 1"),
		"a buffer":              bytes.NewBufferString("pay 1"),
		"a buffer, by value":    *bytes.NewBufferString("pay 1"),
		"a file":                os.Stdin,
		"a reader with a name":  &upload{"order.csv", "pay 1"},
		"a limited reader":      &io.LimitedReader{R: os.Stdin, N: 1},
		"a reader in a struct":  struct{ Body io.Reader }{strings.NewReader("pay 1")},
		"a reader in a map":     map[string]any{"body": bytes.NewReader([]byte("pay 1"))},
		"nothing but hidden":    hidden{1},
		"a pointer to it":       &hidden{1},
		"in a list":             []node{{Value: 1}, {Value: hidden{1}}},
		"in a chain":            node{Next: &node{Next: &node{Value: &hidden{1}}}},
		"an error":              errors.New("pay 1"),
		"a pointer's method":    struct{ Amount big.Int }{*big.NewInt(1)},
		"half of a URL":         url.URL{Host: "x", User: url.UserPassword("a", "b")},
		"a channel":             make(chan int),
		"a function":            func() {},
	} {
		_, err := sum(payload)
		require.Error(t, err, name)
	}

	// These say all that they hold, or what their types say.
	for name, payload := range map[string]any{
		"a struct without fields": struct{}{},
		"an empty object":         raw(`{}`),
		"one name in two objects": raw(`[{"a":1},{"a":{"a":1}}]`),
		"a character in halves":   raw(`"\ud83d\ude00 \\ud800 \u00e9 \\"`),
		"what replaces others":    raw(`"` + "\uFFFD" + ` \ufffd"`),
		"the same in a string":    struct{ To string }{"\uFFFD"},
		"a lock, embedded":        &order{ID: "1", note: hidden{1}},
		"left out":                struct{ ID, Body any }{"1", nil},
		"left out by its tag": struct {
			ID   string
			Body io.Reader `json:"-"`
		}{ID: "1", Body: os.Stdin},
		"by their methods":           []any{time.Unix(1, 0), big.NewInt(1), &struct{ Amount big.Int }{*big.NewInt(1)}},
		"nil":                        (*hidden)(nil),
		"bytes":                      map[string]any{"b": []byte("\xfe"), "a": [2]byte{1}},
		"an embedded nil":            struct{ *order }{},
		"an embedded one":            struct{ *order }{&order{ID: "1"}},
		"a list":                     []node{{Value: 1.5}, {Value: "x"}, {}},
		"a URL without a password":   &url.URL{Scheme: "https", Host: "x"},
		"a list of many numbers":     make([]float64, 1000),
		"raw messages, and pointers": []any{raw(`1`), &node{Value: raw(`{"a":1}`)}},
	} {
		_, err := sum(payload)
		require.NoError(t, err, name)
	}
}

// A Sum is part of a fingerprint, and those are stored: it stays as it is.
func TestGolden(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("<é\\n>", 2_000)
	for want, in := range map[string][]string{
		"d89f9f88aed7c18b": {` {"b" : [1, 1.0, 1e2, -0], "a":{"z":null,"y":true}}`, `{"a":{"y":true,"z":null},"b":[1,1.0,1e2,-0]}`},
		"737a30dd48a001c8": {`"<\u00e9\ud83d\ude00\/>"`, `"\u003cé😀/\u003e"`},
		"4f53cda18c2baa0c": {`[]`, "[ ]\n"},
		"44136fa355b3678a": {`{}`, ` { } `},
		"0c71ebdc4736bf09": {`12345678901234567890123`},
		"550eef51d08d53fc": {`["` + long + `",{"b":"` + long + `","a":[` + strings.Repeat("1,", 5_000) + `1]}]`,
			`["` + strings.ReplaceAll(long, "é", `\u00E9`) + `",{"a":[1` + strings.Repeat(" ,1", 5_000) + `],"\u0062":"` + strings.ReplaceAll(long, `\n`, `\u000a`) + `"}]`},
	} {
		for _, text := range in {
			got, err := canonical.JSON([]byte(text))
			require.NoError(t, err)
			require.Equal(t, want, hex.EncodeToString(got[:8]), "%.60s", text)
		}
	}
}
