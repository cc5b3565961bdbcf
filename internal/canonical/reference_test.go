package canonical_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etcdkit/etcdkit/internal/canonical"
)

// reference returns one text for all texts that are the same JSON, by encoding/json.
func reference(b []byte) ([]byte, error) {
	if err := json.Unmarshal(b, new(json.RawMessage)); err != nil {
		return nil, err
	}
	if err := referenceUnicode(b); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := referenceDecode(d)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

func referenceDecode(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := t.(string)
			if _, twice := object[name]; twice {
				return nil, fmt.Errorf("the member name before byte %d is a duplicate in its object", d.InputOffset())
			}
			if object[name], err = referenceDecode(d); err != nil {
				return nil, err
			}
		}
		_, err = d.Token()
		return object, err
	case json.Delim('['):
		array := []any{}
		for d.More() {
			v, err := referenceDecode(d)
			if err != nil {
				return nil, err
			}
			array = append(array, v)
		}
		_, err = d.Token()
		return array, err
	}
	return t, nil
}

func referenceUnicode(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("it is not valid UTF-8")
	}
	escape := func(i int) rune { // what \uXXXX at i says, or -1
		if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
			return -1
		}
		n, _ := strconv.ParseUint(string(b[i+2:i+6]), 16, 16)
		return rune(n)
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		if r := escape(i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(i+6)) == utf8.RuneError {
				return fmt.Errorf("the escape at byte %d is half of a surrogate pair", i)
			}
			i += 6
		}
		i++ // past what is escaped
	}
	return nil
}

// like asserts that JSON accepts and refuses what reference does, and returns the Sum of a text and
// what reference has made of it.
func like(t require.TestingT, b []byte) (got canonical.Sum, want string) {
	given := bytes.Clone(b)
	text, refused := reference(b)
	got, err := canonical.JSON(b)
	require.Equal(t, refused == nil, err == nil, "%q: %v, and of reference %v", b, err, refused)
	require.Equal(t, given, b, "it is read only")
	if err == nil {
		same, err := canonical.JSON(text)
		require.NoError(t, err)
		require.Equal(t, same, got, "%q and %q are the same", b, text)
	}
	return got, string(text)
}

// draw makes JSON up, some of it with duplicate names, halves of characters and
// bytes that are no Unicode.
func draw(t *rapid.T, out *strings.Builder, depth int) {
	space := func() { out.WriteString(rapid.SampledFrom([]string{"", "", "", " ", "\t\r\n"}).Draw(t, "space")) }
	word := func() {
		out.WriteByte('"')
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			out.WriteString(rapid.OneOf(rapid.SampledFrom([]string{
				"a", "b", "Z", "é", "世", "\U0001F600", "<", ">", "&", "/", "'", "\u007f", "\u2027", "\u2028", "\u2029", "\u202a", "\uFFFD", "âx",
				`\"`, `\\`, `\/`, `\b`, `\f`, `\n`, `\r`, `\t`, `\u0061`, `\u0000`, `\u001F`, `\u003c`, `\u2028`, `\uD83D\uDE00`, `\ufffd`, `\u00e9`, `\u0008`, `\u005c`, `\u0022`,
				`\ud800`, `\udc00`, "\xfe",
			}), rapid.Map(rapid.Rune(), func(r rune) string {
				if r < ' ' || r == '"' || r == '\\' {
					return "x"
				}
				return string(r)
			})).Draw(t, "text"))
		}
		out.WriteByte('"')
	}
	space()
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 {
		kind = max(kind, 6)
	}
	switch {
	case kind < 4:
		out.WriteByte('{')
		space()
		for n := range rapid.IntRange(0, 4).Draw(t, "members") {
			if n > 0 {
				out.WriteByte(',')
				space()
			}
			word()
			space()
			out.WriteByte(':')
			draw(t, out, depth-1)
		}
		out.WriteByte('}')
	case kind < 6:
		out.WriteByte('[')
		space()
		for n := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if n > 0 {
				out.WriteByte(',')
			}
			draw(t, out, depth-1)
		}
		out.WriteByte(']')
	case kind < 8:
		word()
	default:
		out.WriteString(rapid.SampledFrom([]string{"0", "-0", "1", "1.0", "1e2", "1E+2", "-1.5e-10", "12345678901234567890123", "true", "false", "null"}).Draw(t, "scalar"))
	}
	space()
}

// Two texts have one Sum if and only if encoding/json reads the same from both.
func TestLikeEncodingJSON(t *testing.T) {
	t.Parallel()
	texts := map[canonical.Sum]string{}
	sums := map[string]canonical.Sum{}
	check := func(t require.TestingT, b []byte) {
		sum, text := like(t, b)
		if text == "" {
			return
		}
		if before, ok := texts[sum]; ok {
			require.Equal(t, before, text, "two texts with one sum")
		}
		if before, ok := sums[text]; ok {
			require.Equal(t, before, sum, text)
		}
		texts[sum], sums[text] = text, sum
	}
	rapid.Check(t, func(rt *rapid.T) {
		var b strings.Builder
		draw(rt, &b, 5)
		check(rt, []byte(b.String()))
	})
	require.NotEmpty(t, sums)
	for _, depth := range []int{9_999, 10_000, 10_001} {
		for _, one := range []string{"[", `{"a":`} {
			closing := map[string]string{"[": "]", `{"a":`: "}"}[one]
			check(t, []byte(strings.Repeat(one, depth)+"1"+strings.Repeat(closing, depth)))
		}
	}
	check(t, []byte("1e1000000000"))
	check(t, []byte("["+strings.Repeat("9", 100_000)+"e"+strings.Repeat("9", 100_000)+"]"))
	step := 1
	if testing.Short() {
		step = 29
	}
	for n := 0; n < 300; n += step { // around the lengths at which a text is replaced by its hash
		for _, most := range []int{1 << 10, 1 << 12} {
			x := strings.Repeat("x", most-150+n)
			for _, text := range []string{`"` + x + `"`, `"` + x + `\u00e9` + x + `"`, `{"b":1,"` + x + `":2}`, `{"b":"` + x + `","a":2}`, `["` + x + `","` + x + `"]`, `[[["` + x + `"],"a"],` + strings.Repeat("1,", most/2-75+n) + `1]`} {
				check(t, []byte(text))
			}
		}
	}
}

func FuzzLikeEncodingJSON(f *testing.F) {
	for _, s := range []string{
		`{"b":[1,1.0,1e2,-0],"a":{"z":null,"y":true}}`, `"<\u00e9\ud83d\ude00\/>"`, `{"a":1,"\u0061":2}`, `"\ud800"`, ` [ ] `, `{"":{"":[{}]}}`, "\"\u2028\"", "1 2", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) { like(t, b) })
}

// costly are texts of a size, of what costs most for its length.
func costly(size int) map[string][]byte {
	fill := func(begin, one, end string) []byte {
		return []byte(begin + strings.TrimSuffix(strings.Repeat(one, (size-len(begin)-len(end))/len(one)), ",") + end)
	}
	names, deep := strings.Builder{}, strings.Builder{}
	for n := range size / 10 {
		fmt.Fprintf(&names, `"%05x":1,`, n*7919%(size/10))
	}
	for range 9_000 { // members that come in the wrong order at each level
		deep.WriteString(`{"b":1,"a":`)
	}
	return map[string][]byte{
		"numbers": fill("[", "1,", "]"), "objects": fill("[", `{"":1},`, "]"), "names": []byte("{" + strings.TrimSuffix(names.String(), ",") + "}"),
		"nested":  []byte(deep.String() + `"` + strings.Repeat("x", size-len(deep.String())) + `"` + strings.Repeat("}", 9_000)),
		"escapes": fill(`"`, `\u003c`, `"`), "text": fill(`"`, "text ", `"`), "one number": fill("1e", "9", ""), "space": fill("[", " ", "]"),
	}
}

// What a client sends costs a server not much more than its length. -short has an eighth of the length.
func TestCost(t *testing.T) {
	size := 1 << 20
	if testing.Short() {
		size >>= 3
	}
	for name, b := range costly(size) {
		allocations := testing.AllocsPerRun(1, func() {
			_, err := canonical.JSON(b)
			require.NoError(t, err, name)
		})
		require.Less(t, allocations, 200.0, name)
	}
}

func BenchmarkJSON(b *testing.B) {
	for name, text := range costly(1 << 20) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := canonical.JSON(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
