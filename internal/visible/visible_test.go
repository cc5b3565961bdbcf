package visible

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	for s, want := range map[string][2]string{
		"order 4711: größer, 注文": {"order 4711: größer, 注文", "order 4711: größer, 注文"},
		"a\x1b[2J\x07\n\t\x7f":   {`a\x1b[2J\a\n\t\x7f`, `a\x1b[2J\a\n\t\x7f`},
		"a\u009b31m\u202eb":      {`a\u009b31m\u202eb`, `a\u009b31m\u202eb`},
		"charge\u3164\u2800":     {`charge\u3164\u2800`, `charge\u3164\u2800`},
		"x  1 ":                  {`x \u00201\u0020`, "x  1 "},
		"e\u0301\u0301\u0301":    {"e\u0301\u0301\\u0301", "e\u0301\u0301\\u0301"},
		"\xff\U000e0041":         {`\ufffd\U000e0041`, `\ufffd\U000e0041`},
		"":                       {"", ""},
	} {
		require.Equal(t, want, [2]string{Text(s), Line(s)}, "%q", s)
		require.Equal(t, Line(s), Line(Line(s)), "what is escaped stays as it is")
	}
}
