package concurrency

import (
	"sync"

	"go.uber.org/zap"
)

// adopted is what a session has logged of a number in etcd that is in force in place of its program's: once for each
// number, whichever value of that name finds it. It is safe for concurrent use.
type adopted struct {
	mu  sync.Mutex
	was any // the number in etcd that was logged last, or nil
}

// isNew records a number in etcd, and reports whether it is not the one that was logged last.
func (a *adopted) isNew(stored any) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.was == stored {
		return false
	}
	a.was = stored
	return true
}

// limit logs the limit that is in force in place of an agreement's own. A limit of 0 asks for none.
func (a *adopted) limit(log *zap.Logger, of *agreement, stored int64) {
	if of.limit != 0 && a.isNew(stored) {
		log.Info("the limit in etcd is in force, and not the one of this program", zap.String("name", of.name), zap.String("level", string(of.level)),
			zap.Int64("in_etcd", stored), zap.Int64("in_program", of.limit), zap.String("changed_by", setterOf(of.level)))
	}
}

// rate logs the rate that is in force in place of a limiter's own.
func (a *adopted) rate(log *zap.Logger, of *rateLimiter, stored Rate) {
	if own := publicRate(of.want); a.isNew(stored) {
		log.Info("the rate in etcd is in force, and not the one of this program", zap.String("name", of.name),
			zap.Any("in_etcd", stored), zap.Any("in_program", own), zap.String("changed_by", "SetRate"))
	}
}

// setterOf names the call that changes the limit of a level.
func setterOf(level Level) string {
	return map[Level]string{"": "SetLimit", LevelKey: "SetDefault", LevelTotal: "SetLimit of Total"}[level]
}
