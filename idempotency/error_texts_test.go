package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/internal/proof/testkit"
)

// N5: what a function returns is printed once by the error of Do, also if it is what has ended
// the attempt's ctx, and so is why the attempt has ended.
func TestErrorsArePrintedOnce(t *testing.T) {
	t.Parallel()
	own := errors.New("the function's own")
	for name, end := range map[string]func(t *testing.T, f fixture, in instance){
		"lease lost": func(t *testing.T, f fixture, in instance) {
			require.NoError(t, f.RevokeLease(ctxT(t), in.sess.Lease()))
		},
		"too long": func(*testing.T, fixture, instance) {},
		"too long, and dropped": func(t *testing.T, f fixture, in instance) {
			require.Eventually(t, func() bool { return len(f.working()) == 0 }, soon, 5*time.Millisecond)
		},
		"closed": func(t *testing.T, f fixture, in instance) {
			ctx, cancel := context.WithCancel(ctxT(t))
			cancel()
			go func() { _ = in.sess.Close(ctx) }()
		},
		"closed, and ended": func(t *testing.T, f fixture, in instance) {
			ctx, cancel := context.WithCancel(ctxT(t))
			cancel()
			_ = in.sess.Close(ctx)
		},
		"not at all": nil,
	} {
		for how, result := range map[string]func(context.Context) error{
			"the cause":         context.Cause,
			"the cause wrapped": func(ctx context.Context) error { return fmt.Errorf("step 2: %w", context.Cause(ctx)) },
			"its own":           func(context.Context) error { return own },
			"nothing":           func(context.Context) error { return nil },
		} {
			for policy, action := range map[string]idempotency.Action{"forget": idempotency.Forget, "remember": idempotency.Remember, "abandon": idempotency.Abandon} {
				t.Run(name+", "+how+", "+policy, func(t *testing.T) {
					t.Parallel()
					if end == nil && how != "its own" {
						t.Skip("nothing has ended the ctx")
					}
					f := shared(t)
					in := f.instance(&concurrency.SessionOptions{TTL: 300 * time.Second, Margin: 50 * time.Millisecond}, nil)
					opts := []idempotency.Option{idempotency.OnError(func(error) idempotency.Action { return action })}
					if strings.HasPrefix(name, "too long") {
						opts = append(opts, idempotency.MaxExecution(50*time.Millisecond))
					}
					_, err := idempotency.Do(ctxT(t), in.Store, key("1"), nil, func(ctx context.Context, _ *idempotency.Attempt) (int, error) {
						if end != nil {
							end(t, f, in)
							closed(t, ctx.Done(), "its ctx ends")
						}
						return 1, result(ctx)
					}, opts...)
					t.Logf("%q", err)
					if err == nil {
						return
					}
					testkit.PrintedOnce(t, err)
					for _, once := range []string{own.Error(), "MaxExecution of"} {
						require.LessOrEqual(t, strings.Count(err.Error(), once), 1, "%q", err)
					}
				})
			}
		}
	}
}

// N5: an error that denies permission names the prefix and the permission that the role needs.
func TestDeniedNamesThePrefix(t *testing.T) {
	t.Parallel()
	f := own(t)
	ctx := ctxT(t)
	root := f.instance(nil, nil).sess.NamespacePrefix()
	st, err := idempotency.NewStore(f.SessionOn(f.PresenceOnly(root), nil), "store", nil)
	require.NoError(t, err)
	ref := st.Ref(key("1"))
	testkit.Denied(t, root, map[string]func() error{
		"Begin":   func() error { _, _, err := st.Begin(ctx, key("1"), nil); return err },
		"Get":     func() error { _, _, err := st.Get(ctx, ref); return err },
		"Count":   func() error { _, err := st.Count(ctx); return err },
		"Delete":  func() error { return st.Delete(ctx, ref) },
		"Resolve": func() error { return st.Resolve(ctx, ref, idempotency.WasDone(nil)) },
		"List": func() (err error) {
			for _, err = range st.List(ctx, idempotency.Filter{}) {
			}
			return err
		},
	})
}

// An error begins with what was attempted and where, and names the option or call to change.
func TestErrorsNameWhatWasAttempted(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	ctx := ctxT(t)
	at := begin(t, in, key("1"))
	ref := in.Ref(key("none"))
	store := fmt.Sprintf("%q", in.Name())
	_, fresh := idempotency.NewStore(in.sess, "x", &idempotency.Options{CacheFor: -1})
	_, _, noOp := in.Begin(ctx, idempotency.Key{Scope: "t", ID: "1"}, nil)
	_, nothing := idempotency.Do[int](ctx, in.Store, key("2"), nil, nil)
	_, step := idempotency.Step[int](at, "debit", nil)
	_, _, badRef := in.Get(ctx, "x")
	_, _, busy := in.Begin(ctx, key("1"), "payload", idempotency.Wait(0))
	require.NoError(t, at.Commit(ctx, nil))
	_, zero := idempotency.NewStore(&concurrency.Session{}, "x", nil)
	require.ErrorIs(t, zero, idempotency.ErrInvalid)
	for want, err := range map[string]error{
		`idempotency: new store "x": the session is nil`:                                                                                   zero,
		`idempotency: new store "x": Options.CacheFor -1ns is negative`:                                                                    fresh,
		`idempotency: begin in store ` + store + `: Key.Op is empty (the operation, such as "POST /payments")`:                             noOp,
		`idempotency: do in store ` + store + `: "tenant"/"pay": the function is nil`:                                                      nothing,
		`idempotency: step "debit" of "tenant"/"pay" in store ` + store + `: the function is nil`:                                          step,
		`idempotency: get record x in store ` + store + `: "x" is not a reference (Store.Ref, Record.Ref)`:                                 badRef,
		`idempotency: begin in store ` + store + fmt.Sprintf(`: "tenant"/"pay": request is in progress, attempt 1 by %q`, in.sess.Owner()): busy,
		`idempotency: commit "tenant"/"pay" in store ` + store + `: attempt is settled`:                                                    at.Commit(ctx, nil),
		`idempotency: release "tenant"/"pay" in store ` + store + `: attempt is settled`:                                                   at.Release(ctx),
		`idempotency: run "tenant"/"pay" in store ` + store + `: the function is nil`:                                                      at.Run(ctx, nil),
		`idempotency: delete record ` + string(ref) + ` in store ` + store + `: no such record`:                                            in.Delete(ctx, ref),
		`idempotency: resolve record ` + string(ref) + ` in store ` + store + `: the Resolution is empty (WasDone, HasFailed or NotDone)`:  in.Resolve(ctx, ref, idempotency.Resolution{}),
	} {
		require.EqualError(t, err, want)
	}
}

// The cause of an attempt that has ended is one line, and has what it was and the bound or the reason.
func TestTextsOfEndedAttempts(t *testing.T) {
	t.Parallel()
	f := shared(t)
	in := f.instance(nil, nil)
	late := begin(t, in, key("late"), idempotency.MaxExecution(10*time.Millisecond))
	closed(t, late.Context().Done(), "MaxExecution of")
	require.EqualError(t, late.Err(), `run "tenant"/"pay": attempt lasted too long: MaxExecution of 10ms has passed`)
	lost := begin(t, in, key("lost"))
	require.NoError(t, f.RevokeLease(ctxT(t), in.sess.Lease()))
	closed(t, lost.Context().Done(), "its lease is lost")
	require.ErrorIs(t, lost.Err(), idempotency.ErrLost)
	require.Regexp(t, `^attempt at "tenant"/"pay" is lost: [^\n]+$`, lost.Err().Error())
}
