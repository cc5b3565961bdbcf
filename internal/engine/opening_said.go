package engine

import (
	"time"

	"go.uber.org/zap"
)

// sayWhileOpening logs, after ten seconds and then each minute until stop is called, that a new session has no lease yet: a
// process whose NewSession has no deadline is otherwise silent for as long as its endpoints are wrong.
func sayWhileOpening(s *Session) (stop func()) {
	done := make(chan struct{})
	go func() {
		began, pause := time.Now(), time.NewTimer(10*time.Second)
		defer pause.Stop()
		for {
			select {
			case <-done:
				return
			case <-pause.C:
			}
			s.opts.Log.Warn("no session yet: etcd does not answer", zap.Duration("for", time.Since(began).Round(time.Second)),
				zap.Strings("endpoints", s.etcd.Client.Endpoints()), zap.Stringer("connection", s.etcd.Client.ActiveConnection().GetState()))
			pause.Reset(time.Minute)
		}
	}()
	return func() { close(done) }
}
