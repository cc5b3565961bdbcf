package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/limit"
	"github.com/etcdkit/etcdkit/schedlock"
)

// The exit codes. Those from 64 on are of sysexits.h where it has one. `run` exits with the code of its
// command otherwise, or with 128 and the number of the signal that has ended it.
const (
	exitOK          = 0
	exitFailed      = 1  // not found, in another state, or an error of etcd's
	exitUsage       = 64 // a flag or an argument is wrong; nothing was sent to etcd, or nothing was changed
	exitUnreachable = 69 // etcd does not answer: it is not known whether something was changed
	exitNotAcquired = 75 // no permit was granted; a repetition may succeed
	exitLost        = 76 // the permit was lost while it was needed
	exitDenied      = 77 // etcd refuses the user
	exitNotRunnable = 126
	exitNotFound    = 127
)

// usageError is a mistake in the flags or arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usage returns the error of flags or arguments that could not be parsed.
func usage(cmd *cobra.Command, err error) error {
	if strings.Contains(err.Error(), "missing unit in duration") {
		err = fmt.Errorf("%w, as in 5s or 1h30m", err)
	}
	see := fmt.Sprintf("See '%s --help'", cmd.CommandPath())
	if cmd.HasParent() { // cobra suggests verbs, and nothing below them
		see = "Usage: " + strings.TrimSuffix(cmd.UseLine(), " [flags]") + "\n" + see
		cmd.SuggestionsMinimumDistance = 2
		if args := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(args) > 0 {
			for _, s := range cmd.SuggestionsFor(args[0]) {
				see = fmt.Sprintf("Did you mean '%s %s'?\n%s", cmd.CommandPath(), s, see)
			}
		}
	}
	return usageError{fmt.Errorf("%w\n%s", err, see)}
}

// interrupted is the end of a verb by a signal.
type interrupted struct{ syscall.Signal }

func (i interrupted) Error() string { return "ended by a signal: " + i.Signal.String() }

// exitError is an end with a code of its own, such as that of a command. Its error may be nil: then
// nothing is reported.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// explain returns the exit code of an error, and its text for standard error, with what to do next.
func explain(err error) (code int, text string) {
	if err == nil {
		return exitOK, ""
	}
	code, next := classify(err)
	text = inShell.Replace(err.Error())
	if code != exitUsage { // whose lines are this command's own; others are of errors that were joined
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
	": give the client the addresses of etcd's members, or set AllowProxy", "",
	": if the name is right, pass CreateLimit", "",
	": set Username and Password in the clientv3.Config of this client", "",
	" may still be working (EvenIfAlive)", " may still be working",
	"is not a reference (Store.Ref, Record.Ref)", "is no reference; 'etcdkit requests list STORE' prints them",
)

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

// code returns whether an error has one of these codes of gRPC.
func grpcCode(of ...codes.Code) func(error) bool {
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
	{exitUsage, "", func(err error) bool { var u usageError; return errors.As(err, &u) }},
	{exitUsage, "", is(concurrency.ErrInvalid)},
	{exitDenied, "Check --user and --password (ETCDCTL_USER, ETCDCTL_PASSWORD).", func(err error) bool { return noUser(err) || errors.Is(err, rpctypes.ErrAuthFailed) }},
	{exitDenied, "The role of --user must cover the prefix of the namespace, or --prefix for a verb without one; a verb that changes nothing needs read in place of readwrite: see docs/operations.md, roles.",
		func(err error) bool {
			return grpcCode(codes.PermissionDenied, codes.Unauthenticated)(err) || is(rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken)(err)
		}},
	{exitFailed, "etcd is out of space and refuses writes: see docs/operations.md, etcd is out of space.", is(rpctypes.ErrNoSpace)},
	{exitFailed, "etcdkit works with etcd's members themselves: 'etcdkit doctor' names what answers at each endpoint.", is(errors.ErrUnsupported)},
	{exitLost, "", is(concurrency.ErrLost, concurrency.ErrReleased)},
	{exitNotAcquired, "'etcdkit show NAME' lists the holders.", is(concurrency.ErrFull)},
	{exitNotAcquired, "The ID is in use: 'etcdkit show NAME' names its owner.", is(concurrency.ErrHeld)},
	{exitUsage, "'etcdkit limit NAME N' changes the stored limit for all processes.", is(concurrency.ErrLimitMismatch)},
	{exitFailed, "'etcdkit ls' lists the names that etcd has; 'etcdkit limit KIND/NAME N --create' stores a limit for a new one.", is(concurrency.ErrNoLimit)},
	{exitFailed, "Of a later release, it is changed by a later etcdkit. Otherwise delete the queue's key 'limit' with etcdctl, and store it again with 'etcdkit limit KIND/NAME N --create'.", is(limit.ErrUnreadable)},
	{exitFailed, "'etcdkit show NAME' lists the requests with their tokens and IDs.", is(concurrency.ErrNotHeld)},
	{exitFailed, "'etcdkit jobs' lists the jobs.", is(schedlock.ErrUnknownJob)},
	{exitFailed, "'etcdkit requests list STORE' lists the requests.", is(idempotency.ErrNotFound)},
	{exitFailed, "Wait until the process has ended, or add --force if you know that nothing of the attempt is at work any more.", is(idempotency.ErrAlive)},
	{exitUnreachable, "Check --endpoints (ETCDCTL_ENDPOINTS) and --cacert; 'etcdkit doctor' shows what of etcd answers.",
		func(err error) bool {
			return is(concurrency.ErrUnavailable, context.DeadlineExceeded)(err) || grpcCode(codes.Unavailable, codes.DeadlineExceeded)(err)
		}},
}

// classify returns the exit code of an error and what to do next.
func classify(err error) (code int, next string) {
	var own *exitError
	if errors.As(err, &own) {
		return own.code, ""
	}
	var by interrupted
	if errors.As(err, &by) {
		return 128 + int(by.Signal), ""
	}
	for _, c := range classes {
		if c.of(err) {
			return c.code, c.next
		}
	}
	return exitFailed, ""
}
