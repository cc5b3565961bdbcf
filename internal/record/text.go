package record

import (
	"strings"
	"unicode"
)

// MaxText bounds the text of an error in a record, in bytes.
const MaxText = 1024

// Text returns the text of an error as a record stores it: valid UTF-8, cut to MaxText bytes at the
// end of a character.
func Text(text string) string { return cut(text, MaxText) }

// MaxNote bounds the note of a request, in bytes.
const MaxNote = 256

// Note returns a note as a record stores it: as Text, cut to MaxNote bytes, with a space in place of each character
// that is not visible.
func Note(text string) string {
	return cut(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "�"))), MaxNote)
}

// cut returns a text as valid UTF-8, cut to so many bytes at the end of a character.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "�")
	return strings.ToValidUTF8(text[:min(len(text), most)], "") // without the part of a character at its end
}
