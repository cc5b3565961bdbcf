package schedlock

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/etcdkit/etcdkit/internal/record"
)

// fingerprint returns the settings on which all users of a job in this process must agree.
func (s settings) fingerprint() string {
	text := fmt.Sprintf("AtMost %v%s%v, Retries %d", s.atMost, record.Least, s.atLeast, s.retries)
	if s.every > 0 {
		text += period + s.every.String()
	}
	return text
}

// shared returns the settings on which all live processes must agree, with the fire times if they
// are known. These have the place of the period.
func (r request) shared() string {
	if r.every == 0 && r.fires != "" {
		return r.fingerprint() + period + r.fires
	}
	return r.fingerprint()
}

const period = record.Period

// settingsOf returns the stored settings, with which none agree if they cannot be read.
func settingsOf(kv *mvccpb.KeyValue) string {
	s, ok := record.DecodeSettings(kv.Value)
	if !ok {
		return record.Why(string(kv.Key), kv.Value).Error()
	}
	return s.Text
}

// agree reports whether two users of a job have the same settings, and returns the more complete
// text: a caller that passes a tick has no period. Of two texts of fire times that agree it is theirs.
// theirs is "" if there are none.
func agree(mine, theirs string) (both string, ok bool) {
	a, m, _ := strings.Cut(mine, period)
	b, t, _ := strings.Cut(theirs, period)
	if theirs == "" || a != b {
		return max(mine, theirs), theirs == ""
	}
	here, schedule := parseFires(m)
	if there, ok := parseFires(t); schedule && ok {
		return theirs, here.agree(there)
	}
	return max(mine, theirs), m == t || m == "" || t == ""
}

// reschedules reports whether two settings differ only in their fire times: the process that has
// stored one may replace it with the other, for instance when it has read its configuration again.
func reschedules(mine, theirs string) bool {
	a, m, _ := strings.Cut(mine, period)
	b, t, _ := strings.Cut(theirs, period)
	_, here := parseFires(m)
	_, there := parseFires(t)
	return a == b && here && there
}

// differ reports whether two settings agree, and their fire times do not: the zone files of two hosts
// differ, or two parsers.
func differ(mine, theirs string) bool {
	_, m, _ := strings.Cut(mine, period)
	_, t, _ := strings.Cut(theirs, period)
	here, a := parseFires(m)
	there, b := parseFires(t)
	if !a || !b || !here.agree(there) {
		return false
	}
	return here.sample != there.sample
}
