package console

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// unlock ends the run that the page has shown, by its token, or a cooldown, if there is none.
func unlock(ctx context.Context, l *schedlock.Locker, name, target, reason string) error {
	token, _ := strconv.ParseInt(target, 10, 64) // it is checked, or empty
	err := l.Unlock(ctx, name, reason, schedlock.OnlyRun(token))
	switch {
	case !errors.Is(err, schedlock.ErrNotRunning):
		return err
	case token == 0:
		return changed{errors.New("the job does not cool down any more, or a run is active by now; nothing was unlocked")}
	}
	return changed{fmt.Errorf("the run with token %d has ended meanwhile; nothing was unlocked, also if another run is active by now", token)}
}

// trigger has a job run now, and waits until a process has started it.
func trigger(ctx context.Context, l *schedlock.Locker, name, reason string) error {
	id, err := l.RequestRun(ctx, name, reason)
	if err != nil {
		return err
	}
	for bound := time.Now().Add(startBound); time.Now().Before(bound); {
		if _, err := l.Requested(ctx, name, id); !errors.Is(err, schedlock.ErrGone) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	st, err := l.Status(ctx, name)
	why := st.Unanswered()
	if err != nil {
		why = fmt.Sprintf("why is not known: %v", err)
	}
	return changed{fmt.Errorf("no process has started job %q within %v: %s; one that receives the request within a minute may start it later", name, startBound, why)}
}
