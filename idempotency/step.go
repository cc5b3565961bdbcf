package idempotency

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
	"github.com/etcdkit/etcdkit/internal/record"
)

// maxSteps bounds what the recovery points of one attempt take, in bytes as stored.
const maxSteps = 512 << 10

// Step is a recovery point: it calls fn, records the returned value as JSON and returns it. In a later
// attempt at the same request it returns the recorded value and does not call fn. Two steps of a
// request need different names. A step costs one Txn.
//
// If fn returns an error, Step returns it unchanged and records nothing. It returns ErrTooLarge if
// the values of all steps together exceed 512 KiB, or what etcd or the client accepts in a message;
// ErrUnreadable for a recorded value that is not a T; ErrInvalid for a nil fn, for a name that was
// used before, and for a T or a value that Do refuses; ErrFenced, ErrSettled, the cause of the attempt's context if it has ended before, or an
// error of etcd's. If fn was called, Step returns its value with these errors, too; the value is not
// recorded.
func Step[T any](a *Attempt, name string, fn func(ctx context.Context) (T, error)) (v T, err error) {
	if fn == nil {
		return v, a.aboutStep(name, invalid("the function is nil"))
	}
	if err = cmp.Or(checkResult[T](), a.Err()); err == nil {
		err = a.names.use(name)
	}
	if err != nil {
		return v, a.aboutStep(name, err)
	}
	done := false
	defer func() {
		if !done { // failed or panicked
			a.names.free(name)
		}
	}()
	stored, found, err := a.step(name)
	if err == nil && found {
		if err = decodeResult(stored, &v); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	if err != nil || found {
		done = err == nil
		return v, a.aboutStep(name, err)
	}
	if v, err = fn(context.WithValue(a.Context(), callsKey{}, &calls{of: a, step: name})); err != nil {
		return v, err
	}
	b, v, err := encodeResult(v)
	if err != nil {
		return v, a.aboutStep(name, invalid("%w", err))
	}
	err = a.record(name, b)
	done = err == nil
	return v, a.aboutStep(name, err)
}

func (a *Attempt) aboutStep(name string, err error) error {
	return a.about(fmt.Sprintf("step %q of", name), err)
}

// stepNames are the names of the steps that run, or that the attempt has passed. It is safe for
// concurrent use.
type stepNames struct {
	mu   sync.Mutex
	used map[string]bool
}

// use notes that a step has a name. It returns ErrInvalid if another step of this attempt has it: the
// value of the one would be taken for that of the other.
func (n *stepNames) use(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.used[name] {
		return invalid("this attempt has used the name before: give each step a name of its own, such as %q", name+"/2")
	}
	if n.used == nil {
		n.used = map[string]bool{}
	}
	n.used[name] = true
	return nil
}

func (n *stepNames) free(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, name)
}

// lock takes the right to write the record. It fails once the attempt is being settled.
func (a *Attempt) lock() error {
	select {
	case a.writing <- struct{}{}:
	case <-a.Context().Done():
		return a.Err()
	}
	a.mu.Lock()
	err, ending := a.over, a.ending
	a.mu.Unlock()
	if err == nil && ending {
		err = ErrSettled
	}
	if err != nil {
		<-a.writing
	}
	return err
}

func (c *claim) boundStep(name string) string { return bound(c.entry) + "/" + name }

// step returns the value of a step that was recorded. It finds out first whether one was whose put is in doubt.
func (a *Attempt) step(name string) ([]byte, bool, error) {
	if err := a.lock(); err != nil {
		return nil, false, err
	}
	defer func() { <-a.writing }()
	if err := a.resolve(a.Context()); err != nil {
		return nil, false, a.store.sess.Explain(joined(context.Cause(a.Context()), err))
	}
	steps, ok := record.DecodeSteps(a.rec.Body)
	if !ok {
		return nil, false, ErrUnreadable
	}
	for _, st := range steps {
		if st.Name == name {
			v, err := a.store.decode(st.Value, st.Codec, a.boundStep(name))
			return v, err == nil, err
		}
	}
	return nil, false, nil
}

// record adds a step to the record.
func (a *Attempt) record(name string, value []byte) error {
	stored, codec, err := a.store.encode(value, a.boundStep(name))
	if err != nil {
		return err
	}
	return a.rewrite(func(r *record.Attempt) error {
		steps, ok := record.DecodeSteps(r.Body)
		if !ok {
			return ErrUnreadable
		}
		r.Body = record.EncodeSteps(append(steps, record.Step{Name: name, Codec: codec, Value: stored}))
		if len(r.Body) > maxSteps {
			return fmt.Errorf("%w: the steps have %d bytes together, more than %d", ErrTooLarge, len(r.Body), maxSteps)
		}
		return nil
	})
}

// rewrite changes the record of the attempt in progress.
func (a *Attempt) rewrite(change func(*record.Attempt) error) error {
	if err := a.lock(); err != nil {
		return err
	}
	defer func() { <-a.writing }()
	if err := a.resolve(a.Context()); err != nil {
		return err
	}
	r := a.rec
	if err := change(&r); err != nil {
		return err
	}
	text := r.Encode()
	a.store.space.writes(1, len(text))
	var res commit.Amending
	err := commit.Allowed(a.Context(), a.epoch.Valid, func() (err error) {
		res, err = a.put(a.Context(), text, text)
		return err
	})
	switch {
	case err != nil:
		a.unsure = text
		if commit.TooLarge(err) {
			err = fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return a.store.sess.Explain(joined(context.Cause(a.Context()), err)) // the attempt's own
	case res.Outcome == commit.Amended:
		a.rec, a.mod = r, res.Mod
		return nil
	case res.Outcome == commit.Overtaken:
		return ErrFenced
	}
	return errors.New("the lease of the record does not exist any more")
}

// put writes the record of the attempt in progress, if it was not changed. If an answer is lost, a
// record that is one of mine counts as written by this call. The caller holds writing.
func (a *Attempt) put(ctx context.Context, text string, mine ...string) (commit.Amending, error) {
	return commit.Amend(ctx, a.store.kv, commit.Amendment{
		Key: a.entry.Record, Mod: a.mod, Then: []clientv3.Op{clientv3.OpPut(a.entry.Record, text, clientv3.WithLease(a.work.id))},
		Mine: func(kv *mvccpb.KeyValue) bool { return kv != nil && slices.Contains(mine, string(kv.Value)) },
	})
}

// resolve finds out whether an unanswered put of a step took effect, and keeps a copy that is still
// under way from taking effect. The caller holds writing.
func (a *Attempt) resolve(ctx context.Context) error {
	if a.unsure == "" {
		return nil
	}
	before := a.rec.Encode()
	res, err := a.put(ctx, before, a.unsure, before)
	if err != nil {
		return err
	}
	if res.Outcome != commit.Amended {
		return ErrFenced
	}
	if res.Found != nil && string(res.Found.Value) == a.unsure {
		a.rec, _ = record.DecodeAttempt(res.Found.Value)
		logNote(a, a.rec.Note)
	}
	a.mod, a.unsure = res.Mod, ""
	return nil
}
