// Package doctor examines the etcd that a client reaches: its endpoints and members, its alarms, how long reads and
// writes take, and what the client's user may do. The command and the console show the same findings.
//
// A check asks etcd a bounded number of questions, and a pure function judges the answers. Nothing that is stored
// changes: a check that must be a write is a Txn whose condition is false.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// Level is how bad a finding is.
type Level string

// The levels. A Note says what is not known; a Warn is worth an operator's attention; a Fail stops a part of the product, or
// breaks a promise.
const (
	OK   Level = "OK"
	Note Level = "NOTE"
	Warn Level = "WARN"
	Fail Level = "FAIL"
)

// Finding is what one check has found.
type Finding struct {
	Level  Level  `json:"level"`
	Check  string `json:"check"`
	Text   string `json:"text"`
	Advice string `json:"advice,omitempty"` // what it means and what to do; "" if OK
}

// One returns a single finding. Its text is one line.
func One(l Level, advice, format string, args ...any) []Finding {
	return []Finding{{Level: l, Text: strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "), Advice: advice}}
}

// Named returns findings as those of a check.
func Named(check string, found []Finding) []Finding {
	for i := range found {
		found[i].Check = check
	}
	return found
}

// NotMade is the finding of a check that could not be made, or only in part.
func NotMade(what string, err error) []Finding {
	switch {
	case NoUser(err):
		return One(Warn, "Users are checked, and this client has none: give it a user and a password.", "%s: %v", what, err)
	case commit.Denied(err):
		return One(Warn, "The user may not read it; a user with more permissions can make this check.", "%s: %v", what, err)
	case away(err):
		return One(Fail, "etcd did not answer in time; with more time for each check (--command-timeout) it may.", "%s: %v", what, err)
	}
	return One(Fail, "", "%s: %v", what, err)
}

// NoUser reports whether etcd checks users, and a request has none.
func NoUser(err error) bool { return errors.Is(err, rpctypes.ErrUserEmpty) }

// away reports whether etcd was not reached, or not in time.
func away(err error) bool { return commit.Away(err) || status.Code(err) == codes.DeadlineExceeded }

// late reports whether a call has ended because its time was over.
func late(ctx context.Context, err error) bool {
	return err != nil && (ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded)
}

// Millis returns a duration in milliseconds as text.
func Millis(d time.Duration) string {
	if d < time.Millisecond {
		return "<1ms"
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
