package record

import "strings"

// MaxText bounds the text of an error in a record, in bytes.
const MaxText = 1024

// Text returns the text of an error as a record stores it: valid UTF-8, cut to MaxText bytes at the
// end of a character.
func Text(text string) string {
	text = strings.ToValidUTF8(text, "�")
	return strings.ToValidUTF8(text[:min(len(text), MaxText)], "") // without the part of a character at its end
}
