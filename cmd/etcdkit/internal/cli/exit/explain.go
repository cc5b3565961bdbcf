package exit

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// Explain returns the exit code of an error, and its text for standard error, with what to do next.
func Explain(err error) (code int, text string) {
	if err == nil {
		return OK, ""
	}
	code, next := classify(err)
	text = waited.ReplaceAllString(inShell.Replace(err.Error()), "; --wait $1 has passed")
	if code != Usage { // whose lines are this command's own; others are of errors that were joined
		text = strings.ReplaceAll(text, "\n", "; ")
	}
	if next != "" && text != "" {
		text = strings.TrimRight(text, ".") + "\n" + next
	}
	return code, text
}

// inShell replaces advice for programs.
var inShell = strings.NewReplacer(
	"; TakeOver would evict it", "",
	"(SetLimit resumes)", "('etcdkit limit' resumes)",
	": give the client the addresses of etcd's members, or set AllowProxy", "",
	": if the name is right, pass CreateLimit", "",
	": set Username and Password in the clientv3.Config of this client", "",
	" may still be working (EvenIfAlive)", " may still be working",
	"is not a reference (Store.Ref, Record.Ref)", "is no reference; 'etcdkit requests list STORE' prints them",
)

// waited is the option of a program that is --wait here.
var waited = regexp.MustCompile(`; Wait\(([^)]*)\) has passed`)

// noUser reports whether etcd checks users, and a request has none.
func noUser(err error) bool { return errors.Is(err, rpctypes.ErrUserEmpty) }

// class is what a kind of error means for the caller of the command.
type class struct {
	code int
	next string // what to do next, or ""
	of   func(error) bool
}

// is returns whether an error is one of these.
func is(targets ...error) func(error) bool {
	return func(err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
}

// hasCode returns whether an error has one of these codes of gRPC.
func hasCode(of ...codes.Code) func(error) bool {
	return func(err error) bool {
		var etcd rpctypes.EtcdError
		var s interface{ GRPCStatus() *status.Status }
		for _, code := range of {
			if errors.As(err, &etcd) && etcd.Code() == code || errors.As(err, &s) && s.GRPCStatus().Code() == code {
				return true
			}
		}
		return false
	}
}

// classes are the kinds of error; the first that fits counts.
var classes = []class{
	{Usage, "", func(err error) bool { var u usageError; return errors.As(err, &u) }},
	{Usage, "", is(concurrency.ErrInvalid)},
	{Denied, "etcd checks users, and this call has none: give --user and --password (ETCDCTL_USER, ETCDCTL_PASSWORD), or a " +
		"certificate (--cert) whose common name is a user's.", noUser},
	{Denied, "Check --user and --password (ETCDCTL_USER, ETCDCTL_PASSWORD).", is(rpctypes.ErrAuthFailed)},
	{Denied, "The role of the user (--user, or the common name of --cert) must cover the prefix of the namespace, or --prefix for a " +
		"verb without one; a verb that changes nothing needs read in place of readwrite: see docs/operations.md, roles.",
		is(rpctypes.ErrPermissionDenied, rpctypes.ErrGRPCPermissionDenied)},
	{Denied, "etcd does not know the token of the login any more: call again.", is(rpctypes.ErrInvalidAuthToken, rpctypes.ErrGRPCInvalidAuthToken)},
	{Denied, "What answers refuses the call, and not as etcd does: it may be a proxy. 'etcdkit doctor' names what answers at each endpoint.",
		hasCode(codes.PermissionDenied, codes.Unauthenticated)},
	{Failed, "etcd is out of space and refuses writes: see docs/operations.md, etcd is out of space.", is(rpctypes.ErrNoSpace)},
	{Failed, "The data of etcd's members differ (alarm CORRUPT), and etcd refuses writes: 'etcdctl endpoint hashkv --cluster' compares " +
		"them; replace the member that differs, then 'etcdctl alarm disarm'.", is(rpctypes.ErrCorrupt)},
	{Failed, "etcdkit works with etcd's members themselves: 'etcdkit doctor' names what answers at each endpoint.", is(errors.ErrUnsupported)},
	{Lost, "", is(concurrency.ErrLost, concurrency.ErrReleased)},
	{NotAcquired, "'etcdkit show NAME' lists the holders.", is(concurrency.ErrFull)},
	{NotAcquired, "The ID is in use: 'etcdkit show NAME' names its owner.", is(concurrency.ErrHeld)},
	{Usage, "'etcdkit limit NAME N' changes the stored limit for all processes.", is(concurrency.ErrLimitMismatch)},
	{Failed, "'etcdkit ls' lists the names that etcd has; 'etcdkit limit KIND/NAME N --create' stores a limit for a new one.",
		is(concurrency.ErrNoLimit)},
	{Failed, "Of a later release, it is changed by a later etcdkit. Otherwise delete the queue's key 'limit' with etcdctl, and " +
		"store it again with 'etcdkit limit KIND/NAME N --create'.", is(limit.ErrUnreadable)},
	{Failed, "'etcdkit show NAME' lists the requests with their tokens and IDs.", is(concurrency.ErrNotHeld)},
	{Failed, "'etcdkit jobs' lists the jobs.", is(schedlock.ErrUnknownJob)},
	{Failed, "'etcdkit requests list STORE' lists the requests.", is(idempotency.ErrNotFound)},
	{Failed, "Wait until the process has ended, or add --force if you know that nothing of the attempt is at work any more.",
		is(idempotency.ErrAlive)},
	{Unreachable, "Check --endpoints (ETCDCTL_ENDPOINTS), --cacert, and --cert and --key if etcd wants them; 'etcdkit doctor' shows what of etcd answers.",
		func(err error) bool {
			return is(concurrency.ErrUnavailable, context.DeadlineExceeded)(err) || hasCode(codes.Unavailable, codes.DeadlineExceeded)(err)
		}},
}

// classify returns the exit code of an error and what to do next.
func classify(err error) (code int, next string) {
	var own *Error
	if errors.As(err, &own) {
		return own.Code, ""
	}
	var by Interrupted
	if errors.As(err, &by) {
		return 128 + int(by.Signal), ""
	}
	for _, c := range classes {
		if c.of(err) {
			return c.code, c.next
		}
	}
	return Failed, ""
}

// CodeOf returns the exit code of an error.
func CodeOf(err error) int {
	code, _ := Explain(err)
	return code
}

// IsUnavailable reports whether an error says that there is no connection to etcd, or no leader.
func IsUnavailable(err error) bool { return hasCode(codes.Unavailable)(err) }
