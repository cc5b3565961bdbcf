package keyspace

import clientv3 "go.etcd.io/etcd/client/v3"

// Span is what is left of a range of keys that is read page by page. For each page, etcd counts all keys of the
// requested range, so pages of a long range are slow, however small they are. A Span requests the keys up to the end
// of the prefix that those of the page before had in common, and the whole range again where that prefix ends.
type Span struct {
	from, end string
	near      string // the end of what is requested next; "": end
}

// NewSpan returns the range from a key on, before another one.
func NewSpan(from, end string) *Span { return &Span{from: from, end: end} }

// Range returns the range of the next page.
func (s *Span) Range() (from, end string) {
	if s.near != "" {
		return s.from, s.near
	}
	return s.from, s.end
}

// Advance removes a page with more keys behind it in its range, by its first key and its last one.
func (s *Span) Advance(first, last string) {
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	_, end := s.Range()
	s.from = last + "\x00"
	if near := clientv3.GetPrefixRangeEnd(first[:n]); near > s.from && near < end {
		s.near = near
	}
}

// Finish removes a page with no more keys in its range. It reports whether that was the last one.
func (s *Span) Finish() (all bool) {
	if s.near == "" {
		return true
	}
	s.from, s.near = s.near, ""
	return false
}
