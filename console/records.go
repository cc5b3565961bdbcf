package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/idemhttp"
	"github.com/etcdkit/etcdkit/internal/forms"
)

// The actions on the records of requests: what their page shows, and what an operator has found out.

// account is what the form of a record has beside its outcome, result and reason.
type account struct {
	via            string // the entry of the request, as the form has shown it
	status, header string // of a response of HTTP, whose body is the result
	force          bool   // also while the process of the lost attempt lives
}

// examineRecord adds the request that the record is of, and its latest attempt.
func (q request) examineRecord(ctx context.Context, t *target, store string, o order) error {
	st, err := q.console.store(store)
	if err != nil {
		return err
	}
	r, err := recordOf(ctx, st, idempotency.Ref(o.Target))
	switch {
	case errors.Is(err, idempotency.ErrNotFound):
		return notFound{fmt.Errorf("record %.80q of store %q: %w", o.Target, store, err)}
	case errors.Is(err, idempotency.ErrInvalid):
		return badRequest{err}
	case err != nil:
		return err
	case o.Verb == Delete && r.State == idempotency.InProgress:
		return changed{fmt.Errorf("delete record %s in store %q: %w; a record can be deleted after its attempt has ended", r.Ref, store, idempotency.ErrInProgress)}
	case o.Verb == Resolve && !resolvable(r):
		return changed{fmt.Errorf("resolve record %s in store %q: %w: its outcome is not unknown, and no operator has recorded it; the request is %v", r.Ref, store, idempotency.ErrConflict, r.State)}
	}
	t.revision, t.record, t.before = r.Revision, r, r.State.String()
	t.see(r.State, r.Attempt, r.Revision)
	t.say("Reference", string(r.Ref))
	t.say("Note", r.Note)
	t.say("State", r.State.String())
	t.say("Operation", r.Op)
	t.say("Scope", r.Scope)
	t.say("Begun via", r.Via)
	t.say("Returns", r.Returns)
	t.say("Attempt", strconv.Itoa(r.Attempt))
	t.say("Process", r.Owner)
	if r.State == idempotency.Unknown {
		t.say("That process", map[bool]string{true: "lives, and may still be working", false: "it has no session: it has ended, or is cut off from etcd or paused"}[r.Alive])
	}
	t.say("Steps that are recorded", strings.Join(r.Steps, ", "))
	t.since("Started", r.Started)
	t.since("Ended", r.Ended)
	t.say("Failure", r.Failure)
	t.say("Codec", r.Codec)
	t.say("Recorded by", r.Resolved)
	for _, was := range r.Earlier {
		t.say("Before that", strings.TrimSuffix(fmt.Sprintf("%v, by %s, %s: %s", was.State, was.By, rfc(was.At), was.Failure), ": "))
	}
	return nil
}

// resolvable reports whether an operator may say what a request has done: if nothing else knows it, or to correct what
// an operator has said.
func resolvable(r idempotency.Record) bool {
	return r.State == idempotency.Unknown || r.Resolved != "" && r.State != idempotency.InProgress
}

// recordOf returns a record without its result, which may be large.
func recordOf(ctx context.Context, st *idempotency.Store, ref idempotency.Ref) (idempotency.Record, error) {
	for r, err := range st.List(ctx, idempotency.Filter{Refs: []idempotency.Ref{ref}}) {
		return r, err
	}
	return idempotency.Record{}, idempotency.ErrNotFound
}

// result returns the result that was filled in, in the form that the request's entry replays, or what is wrong with it.
func (o order) result() (result []byte, wrong string) {
	switch {
	case isRPC(o.found.via):
		return nil, "A message of gRPC or Connect is no text: record it with the command etcdkit requests resolve."
	case o.found.via == forms.HTTP:
		return o.response()
	case o.found.via == forms.Do, o.found.via == "":
		if !json.Valid([]byte(o.typed)) {
			return nil, "The result is no JSON."
		}
	}
	return []byte(o.typed), ""
}

// response returns the recorded form of a response.
func (o order) response() (result []byte, wrong string) {
	res := idemhttp.Response{Header: http.Header{}, Body: []byte(strings.ReplaceAll(o.typed, "\r\n", "\n"))}
	var err error
	if res.Status, err = strconv.Atoi(o.found.status); err != nil {
		return nil, "The status is not a number from 200 to 999."
	}
	if text := strings.TrimSpace(o.found.header); text != "" {
		if res.Header, err = forms.Header(strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")); err != nil {
			return nil, "The headers are not lines of a name, a colon and a value."
		}
	}
	if err := res.Check(); err != nil {
		return nil, "The response cannot be recorded: " + err.Error() + "."
	}
	return res.Encode(), ""
}

// changeRecord resolves or deletes a record of a store, at the revision at which it was examined, if it was.
func changeRecord(ctx context.Context, c *console, store string, o order, at target) error {
	st, err := c.store(store)
	if err != nil {
		return err
	}
	ref := idempotency.Ref(o.Target)
	var opts []idempotency.ChangeOption
	if at.revision != 0 {
		opts = append(opts, idempotency.OnlyRevision(at.revision))
	}
	if o.found.force {
		opts = append(opts, idempotency.EvenIfAlive())
	}
	switch {
	case o.Verb == Delete:
		return st.Delete(ctx, ref, opts...)
	case o.value == "failed": // duplicates get this text
		return st.Resolve(ctx, ref, idempotency.HasFailed(o.reason), opts...)
	case o.value == "not-done":
		return st.Resolve(ctx, ref, idempotency.NotDone(), opts...)
	case o.value == "done":
		result, wrong := o.result()
		if wrong != "" {
			return badRequest{errors.New(wrong)}
		}
		return st.Resolve(ctx, ref, idempotency.WasDone(result), opts...)
	}
	return badRequest{fmt.Errorf("%q is no outcome", o.value)}
}
