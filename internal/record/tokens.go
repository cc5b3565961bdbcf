package record

import "math"

// Tokens is the value of the stored tokens of a slow rate. Unlike the other records it decides: over how many tokens a
// process begins with, and never over which process holds the share.
type Tokens struct {
	header
	Left float64 `json:"left"` // tokens at its write, at least
	// Lease measures the time since the write: it was granted just before, for TTL seconds, and is not renewed.
	Lease int64 `json:"lease"`
	TTL   int64 `json:"ttl"`
	// GraceMS says that its writer takes tokens that Left does not have, for that long after the grant.
	GraceMS int64  `json:"grace_ms,omitempty"`
	By      string `json:"by,omitempty"`
	AtMS    int64  `json:"at"` // for people only
}

// Encode writes a record.
func (r Tokens) Encode() string { r.Version = version; return encode(r) }

// DecodeTokens reads a Tokens.
func DecodeTokens(b []byte) (r Tokens, ok bool) {
	r, ok = decode[Tokens](b)
	return r, ok && r.Left >= 0 && r.Left <= math.MaxInt32 && r.Lease != 0 && r.TTL >= 0 && r.TTL <= math.MaxInt32 && r.GraceMS >= 0 && r.GraceMS <= math.MaxInt32
}
