// Package visible shows texts of others: what a reader would not see, or what would steer a terminal or a page, is escaped.
package visible

import (
	"strconv"
	"strings"
	"unicode"
)

// mostMarks is how many combining marks a character has: a pile of them would cover the lines above.
const mostMarks = 2

// Text returns a text as a cell of a table or of a page, with what is not visible escaped: control characters, those that
// change the direction of the text around them, those that are drawn as nothing or as a space, marks that do not belong to
// a character, and spaces that a page leaves out, or that would look like the space between two cells.
func Text(s string) string { return escaped(s, true) }

// Line is Text for a line that is not all of others, and may have several spaces.
func Line(s string) string { return escaped(s, false) }

func escaped(s string, spaces bool) string {
	var b strings.Builder
	last, marks := ' ', mostMarks
	for i, r := range s {
		switch mark := unicode.In(r, unicode.Mn, unicode.Me); {
		case spaces && r == ' ' && (last == ' ' || i+1 == len(s)):
			b.WriteString(`\u0020`)
			marks = mostMarks
		case Hidden(r), mark && marks == mostMarks:
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			marks = mostMarks
		case mark:
			b.WriteRune(r)
			marks++
		default:
			b.WriteRune(r)
			marks = 0
		}
		last = r
	}
	return b.String()
}

// Hidden reports whether a character is not visible wherever it is.
func Hidden(r rune) bool {
	const brailleBlank = '\u2800'
	return !unicode.IsGraphic(r) || r == unicode.ReplacementChar || r == brailleBlank ||
		r != ' ' && unicode.In(r, unicode.Zs, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}
