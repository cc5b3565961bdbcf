package idemhttp_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
)

// I39: parameters, escapes, two lines, lists, and bare keys. Two texts with the same name
// are the same key.
func TestKeySyntax(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	lenient, strict := in.serve(nil, paid), in.serve(&idemhttp.Options{Strict: true}, paid)
	keys := []struct {
		lines  []string
		name   string // empty if it is none
		strict string
	}{
		{[]string{`"abc"`}, "abc", "abc"},
		{[]string{`abc`}, "abc", ""},
		{[]string{`  "abc" `}, "abc", "abc"},
		{[]string{`"abc";x=1`}, "abc", "abc"},
		{[]string{`"abc"; x; y="z;\"q"`}, "abc", "abc"},
		{[]string{`"a\"b";x=1`}, `a"b`, `a"b`},
		{[]string{`"a\\b"`}, `a\b`, `a\b`},
		{[]string{`"a b,c"`}, "a b,c", "a b,c"},
		{[]string{`8e03978e-40d5-43dd-bc93-6894a57f9324`}, "uuid", ""},
		{[]string{`"8e03978e-40d5-43dd-bc93-6894a57f9324"`}, "uuid", "uuid"},
		{[]string{`123`}, "123", ""},
		{[]string{`"123"`}, "123", "123"},
		{[]string{`"` + strings.Repeat("x", 255) + `"`}, "long", "long"},
		{[]string{strings.Repeat("x", 255)}, "long", ""},

		{[]string{`"` + strings.Repeat("x", 256) + `"`}, "", ""},
		{[]string{strings.Repeat("x", 256)}, "", ""},
		{[]string{``}, "", ""},
		{[]string{`""`}, "", ""},
		{[]string{`"abc`}, "", ""},
		{[]string{`abc"`}, "", ""},
		{[]string{`"abc" x`}, "", ""},
		{[]string{`"abc", "abc"`}, "", ""},
		{[]string{`"abc"`, `"abc"`}, "", ""},
		{[]string{`"abc`, `def"`}, "", ""},
		{[]string{`abc`, `abc`}, "", ""},
		{[]string{`abc, def`}, "", ""},
		{[]string{`abc;x=1`}, "", ""},
		{[]string{`a b`}, "", ""},
		{[]string{`("abc")`}, "", ""},
		{[]string{`"a\b"`}, "", ""},
		{[]string{`"abc";X=1`}, "", ""},
		{[]string{`"ä"`}, "", ""},
		{[]string{`ä`}, "", ""},
		{[]string{`'abc'`}, "", ""},
	}
	seen := map[string]bool{}
	for _, k := range keys {
		for s, name := range map[server]string{lenient: k.name, strict: k.strict} {
			re := s.post("/payments", "", "body", func(r *http.Request) { r.Header["Idempotency-Key"] = k.lines })
			if name == "" {
				require.Equal(t, idemhttp.CodeMalformed, re.problem(t).Code, k.lines)
				require.Equal(t, http.StatusBadRequest, re.StatusCode)
				continue
			}
			require.Equal(t, http.StatusCreated, re.StatusCode, k.lines)
			require.Equal(t, seen[name], re.replayed(), k.lines)
			seen[name] = true
		}
	}
}

func TestCheckKey(t *testing.T) {
	t.Parallel()
	f := shared(t)
	s := f.instance(nil, nil).serve(&idemhttp.Options{Header: "X-Request-Id", CheckKey: func(key string) error {
		if len(key) < 8 {
			return http.ErrNotSupported
		}
		return nil
	}}, paid)
	re := s.post("/payments", "", "body", header("X-Request-Id", `"short"`))
	require.Equal(t, http.ErrNotSupported.Error(), re.problem(t).Detail)
	require.Equal(t, http.StatusCreated, s.post("/payments", "", "body", header("X-Request-Id", `"long enough"`)).StatusCode)
	require.Equal(t, idemhttp.CodeMissing, s.post("/payments", "long enough", "body").problem(t).Code)
}
