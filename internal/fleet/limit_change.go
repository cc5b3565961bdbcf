package fleet

import "github.com/etcdkit/etcdkit/internal/mirror"

// LimitChange returns which operator or program has changed the stored limit last, and when, in milliseconds; "" if none has, as of
// what the first program was built with.
func (l *Queue) LimitChange() (by string, at int64) {
	return changeOf(mirror.ReadLimitRecord(l.limit))
}

// DefaultChange is LimitChange of the default limit of the keys.
func (l *Limiter) DefaultChange() (by string, at int64) { return changeOf(l.Base) }

func changeOf(stored mirror.LimitRecord) (by string, at int64) {
	if stored.Rev == 0 || stored.Damaged || stored.Initial || stored.Inherit {
		return "", 0
	}
	return stored.By, stored.AtMS
}
