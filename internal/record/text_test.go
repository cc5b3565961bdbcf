package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The text of an error fits into a record, whatever is in it, and stays readable.
func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"a\xffb":                           "a�b",
		strings.Repeat("x", MaxText):       strings.Repeat("x", MaxText),
		strings.Repeat("x", MaxText) + "y": strings.Repeat("x", MaxText),
		strings.Repeat("x", 1023) + "é":    strings.Repeat("x", 1023),
		strings.Repeat("\xff", 5000):       "�",
		strings.Repeat("é", 5000):          strings.Repeat("é", MaxText/2),
	} {
		require.Equal(t, want, Text(text), "%.20q", text)
	}
}
