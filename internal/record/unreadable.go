package record

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// UnreadableError says why the value of a key cannot be read. Nothing of such a value is used, and no release replaces
// one of a later release.
type UnreadableError struct {
	Key     string
	Version int // that of a later release, or 0 for a value that is damaged
}

// Error names the key, and the version that this release does not read.
func (e UnreadableError) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("the value of %s is damaged: it is no record of etcdkit", e.Key)
	}
	return fmt.Sprintf("the value of %s is of a later release: it has version %d, and this release reads version %d", e.Key, e.Version, version)
}

// Why returns why a value cannot be read, which its decoder has found.
func Why(key string, value []byte) UnreadableError {
	return UnreadableError{Key: key, Version: Later(value)}
}

// LaterRange returns between which texts, in the order of their bytes, values of later versions are, and none of this one with a field.
func LaterRange() (from, end string) { return `{"v":1-`, `{"v":;` }

// Later returns the version of a value that a later release has written, or 0. Every version of every value begins with a line
// that is an object of JSON with this member.
func Later(value []byte) int {
	var h header
	line, _, _ := bytes.Cut(value, []byte{'\n'})
	if len(line) > MaxSize || json.Unmarshal(line, &h) != nil || h.Version <= version {
		return 0
	}
	return h.Version
}
