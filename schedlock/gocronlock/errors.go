package gocronlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/etcdkit/etcdkit/schedlock"
)

// The errors of this package. Others are those of package schedlock.
var (
	// ErrInvalid is schedlock.ErrInvalid: an argument or an option is wrong, or gocron was not given what
	// NewCron returned in both places.
	ErrInvalid = schedlock.ErrInvalid

	// ErrSkipped: the tick was not started by this call. It always comes as a *SkippedError, from Lock.
	ErrSkipped = errors.New("tick was not started")

	// ErrNotLeading: this process does not lead. Another one may lead, or none at the moment.
	ErrNotLeading = errors.New("not leading")
)

// SkippedError reports that a tick was not started by this call, and why: see schedlock.Result.Outcome. It
// is an error because gocron skips a task only if Lock fails. errors.Is matches it with ErrSkipped.
type SkippedError struct{ Result schedlock.Result }

// Error returns the job, the tick and the reason.
func (e *SkippedError) Error() string {
	s := fmt.Sprintf("job %q, tick %s: %v", e.Result.Job, e.Result.Tick.UTC().Format(time.RFC3339Nano), e.Result.Outcome)
	if e.Result.Owner != "" {
		s += ", by " + e.Result.Owner
	}
	if p := e.Result.Paused; p != nil {
		if p.By != "" {
			s += " by " + p.By
		}
		if p.Reason != "" {
			s += ": " + p.Reason
		}
	}
	return s
}

// Is reports whether target is ErrSkipped.
func (e *SkippedError) Is(target error) bool { return target == ErrSkipped }

// invalidError is an ErrInvalid with a text of its own.
type invalidError string

func (e invalidError) Error() string        { return string(e) }
func (e invalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(text string) error { return invalidError(text) }
