package canonical

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string that is a value.
func (r *reader) string(i int) (end int, err error) {
	from := len(r.out)
	if end, err = r.text(i); err == nil {
		r.shorten(from)
	}
	return end, err
}

// text reads a string, and writes each of its characters in one way: escaped if it is a quote, a
// backslash or a control character, and otherwise as itself.
func (r *reader) text(i int) (end int, err error) {
	from := len(r.out)
	r.out = append(r.out, '"')
	for i++; ; {
		i = r.plain(i, from)
		switch c := r.at(i); {
		case c == '"':
			r.out = append(r.out, '"')
			return i + 1, nil
		case c != '\\':
			return 0, errSyntax // a control character, or the end of the text
		}
		char, size, err := escape(r.b, i)
		if err != nil {
			return 0, err
		}
		r.out, i = appendChar(r.out, char), i+size
	}
}

// plain copies characters that are not escaped, and returns the position after them. from is where
// the string begins in the form.
func (r *reader) plain(i, from int) (end int) {
	for {
		end = i
		for end < len(r.b) && end-i < piece && !special[r.b[end]] {
			end++
		}
		r.out = append(r.out, r.b[i:end]...)
		r.cutPieces(from)
		if end-i < piece {
			return end
		}
		i = end
	}
}

// special are the bytes that end a run of characters as they are: all but these may be in a string.
var special = func() (is [256]bool) {
	for c := range byte(' ') {
		is[c] = true
	}
	is['"'], is['\\'] = true, true
	return is
}()

// The escapes of one letter, and the characters that they denote.
const (
	letters = `bfnrt"\/`
	meant   = "\b\f\n\r\t\"\\/"
)

// escape returns the character that the escape at i denotes, and the escape's length in bytes.
func escape(b []byte, i int) (char rune, size int, err error) {
	if i+1 >= len(b) {
		return 0, 0, errSyntax
	}
	if b[i+1] != 'u' {
		n := strings.IndexByte(letters, b[i+1])
		if n < 0 {
			return 0, 0, errSyntax
		}
		return rune(meant[n]), 2, nil
	}
	char = unit(b, i)
	switch {
	case char < 0:
		return 0, 0, errSyntax
	case !utf16.IsSurrogate(char):
		return char, 6, nil
	}
	if char = utf16.DecodeRune(char, unit(b, i+6)); char == utf8.RuneError {
		return 0, 0, fmt.Errorf("the escape at byte %d is half of a surrogate pair", i)
	}
	return char, 12, nil
}

// unit returns the code unit that \uXXXX at i denotes, or -1.
func unit(b []byte, i int) (char rune) {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return -1
	}
	for _, c := range b[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		char = char<<4 | rune(c)
	}
	return char
}

// appendChar appends a character that was written as an escape, in the one way in which it counts.
func appendChar(out []byte, char rune) []byte {
	const hex = "0123456789abcdef"
	switch {
	case char == '"' || char == '\\':
		return append(out, '\\', byte(char))
	case char < ' ' && strings.IndexByte(meant, byte(char)) >= 0: // the form is not longer than the text
		return append(out, '\\', letters[strings.IndexByte(meant, byte(char))])
	case char < ' ':
		return append(out, '\\', 'u', '0', '0', hex[char>>4], hex[char&0xf])
	}
	return utf8.AppendRune(out, char)
}
