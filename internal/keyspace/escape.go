package keyspace

import (
	"fmt"
	"net/url"
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

// escape writes every byte outside [A-Za-z0-9._~-] as %XX.
func escape(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") // only a space becomes '+'
}

// unescape is the inverse of escape. It accepts only what escape writes.
func unescape(s string) (string, bool) {
	name, err := url.PathUnescape(s)
	return name, err == nil && escape(name) == s
}

// split splits a key below a range into the name that follows the range, and the rest.
func split(key, before string) (name, rest string, ok bool) {
	tail, below := strings.CutPrefix(key, before)
	escaped, rest, ended := strings.Cut(tail, "/")
	name, ok = unescape(escaped)
	return name, rest, ok && below && ended
}
