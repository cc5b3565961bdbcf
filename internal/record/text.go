package record

import (
	"strings"
	"unicode/utf8"
)

// MaxText bounds the text of an error in a record, in bytes.
const MaxText = 1024

// Text returns the text of an error as a record stores it: valid UTF-8, cut to MaxText bytes at the
// end of a character.
func Text(text string) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) > MaxText {
		text = text[:MaxText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text
}
