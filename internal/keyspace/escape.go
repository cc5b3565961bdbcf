package keyspace

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is the greatest length, in bytes, of a name, an ID or a namespace
// before it is escaped.
const MaxName = 255

// CheckName returns an error unless s can name a semaphore, a mutex or a namespace: not empty, at
// most MaxName bytes of valid UTF-8, without '/' and without control characters. The error
// reads after a noun, such as "the name", which the caller puts before it.
func CheckName(s string) error {
	if err := CheckJob(s); err != nil {
		return err
	}
	if strings.Contains(s, "/") {
		return fmt.Errorf("%q contains '/'; use another separator, such as '.'", s)
	}
	return nil
}

// CheckJob returns an error unless s can name a job: like CheckName, but with '/' as well. Cron
// libraries name jobs after functions, and so after paths of packages.
func CheckJob(s string) error {
	if err := CheckID(s); err != nil {
		return err
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not valid UTF-8", s)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%q contains %q", s, r)
		}
	}
	return nil
}

// CheckID returns an error unless s can be an ID, which is a caller's data and may have any bytes:
// not empty and at most MaxName bytes.
func CheckID(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty, but needs 1 to %d bytes", MaxName)
	case len(s) > MaxName:
		return fmt.Errorf("%.20q… has %d bytes, more than %d", s, len(s), MaxName)
	}
	return nil
}

const upperHex = "0123456789ABCDEF"

// escape writes every byte outside [A-Za-z0-9._~-] as %XX.
func escape(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if !safe(s[i]) {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if c := s[i]; safe(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
	}
	return b.String()
}

func safe(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '.' || c == '_' || c == '~' || c == '-'
}
