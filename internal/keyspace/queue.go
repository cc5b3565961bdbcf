package keyspace

import (
	"math"
	"strconv"
	"strings"
)

// Queue is the part of etcd that belongs to one queue. Its names are built once.
type Queue struct {
	Range    string // limit and requests: what a mirror follows
	Limit    string // the key of the limit
	Requests string // the range of all requests
	Light    string // the range of all requests of weight 1; they can be counted
	Heavy    string // the range of all requests of a greater weight
	// The keys are in this order: the limit, the heavy requests, the light ones. So
	// [Limit, Light) is what a light request must read besides the light ones.
	ids string
}

// ID is the key that says which request an ID stands for. It is outside the counted ranges,
// because etcd's index keeps every deleted name until it is compacted and visits it at each count.
func (q Queue) ID(id string) string { return q.ids + escape(id) }

// Slot is the name of a request: everything that decides over its admission but its age. Slots of
// a session are reused, lowest first, so that the names in etcd's index stay few.
type Slot struct {
	Lease  int64
	Number int
	Weight int64
	// Try marks a request that may be removed at once instead of waiting. No other request
	// is refused because of it.
	Try bool
}

// MaxSlot is the greatest number of a slot.
const MaxSlot = 0xffff

// Slot returns the key of a request.
func (q Queue) Slot(s Slot) string {
	before, try := q.Light, ""
	if s.Weight != 1 {
		before = q.Heavy + strconv.FormatInt(s.Weight, 10) + "/"
	}
	if s.Try {
		try = "-try"
	}
	return before + hex16(s.Lease) + "-" + hexN(uint64(s.Number), 4) + try
}

// ParseSlot is the inverse of Slot. It accepts only what Slot writes, so that each slot has
// one key.
func (q Queue) ParseSlot(key string) (s Slot, ok bool) {
	rest, ok := strings.CutPrefix(key, q.Requests)
	if !ok {
		return Slot{}, false
	}
	if tail, light := strings.CutPrefix(rest, "light/"); light {
		s.Weight, rest = 1, tail
	} else {
		weight, tail, found := strings.Cut(strings.TrimPrefix(rest, "heavy/"), "/")
		w, err := strconv.ParseInt(weight, 10, 64)
		if !found || err != nil || w < 2 || w > math.MaxInt32 {
			return Slot{}, false
		}
		s.Weight, rest = w, tail
	}
	rest, s.Try = strings.CutSuffix(rest, "-try")
	lease, number, found := strings.Cut(rest, "-")
	if !found || len(number) != 4 {
		return Slot{}, false
	}
	n, err := strconv.ParseUint(number, 16, 16)
	if err != nil {
		return Slot{}, false
	}
	s.Number = int(n)
	if s.Lease, ok = parseHex16(lease); !ok {
		return Slot{}, false
	}
	return s, q.Slot(s) == key
}

// IsSlot reports whether a key has the form of a request's.
func (q Queue) IsSlot(key string) bool {
	_, ok := q.ParseSlot(key)
	return ok
}

func hex16(n int64) string { return hexN(uint64(n), 16) }

// hexN writes n with that many hexadecimal digits.
func hexN(n uint64, digits int) string {
	var b [16]byte
	for i := digits - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[n&15]
		n >>= 4
	}
	return string(b[:digits])
}

func parseHex16(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil || len(s) != 16 || hex16(int64(n)) != s {
		return 0, false
	}
	return int64(n), true
}
