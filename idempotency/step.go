package idempotency

import (
	"cmp"
	"context"
	"fmt"
	"sync"

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
// ErrUnreadable for a recorded value that is not a T; ErrInvalid for a nil fn or Attempt, for a name that was
// used before, and for a T or a value that Do refuses; ErrFenced, ErrSettled, the cause of the attempt's context if it has ended before, or an
// error of etcd's. With ErrFenced, the attempt's context ends. If fn was called, Step returns its value with these errors,
// too; the value is not recorded: a later attempt calls fn again, and so does each delivery of a message whose step is too large.
func Step[T any](a *Attempt, name string, fn func(ctx context.Context) (T, error)) (v T, err error) {
	if !claimed(a) {
		return v, none(fmt.Sprintf("step %q of", name))
	}
	if fn == nil {
		return v, aboutStep(a, name, invalid("the function is nil"))
	}
	if err = cmp.Or(checkResult[T](), a.Err()); err == nil {
		err = a.names.use(name)
	}
	if err != nil {
		return v, aboutStep(a, name, err)
	}
	done := false
	defer func() {
		if !done { // failed or panicked
			a.names.free(name)
		}
	}()
	stored, found, err := recordedStep(a, name)
	if err == nil && found {
		if err = decodeOwn(stored, &v, "give each step a name of its own"); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnreadable, err)
		}
	}
	if err != nil || found {
		done = err == nil
		return v, aboutStep(a, name, err)
	}
	if v, err = fn(context.WithValue(a.Context(), callsKey{}, &calls{of: a, step: name})); err != nil {
		return v, err
	}
	b, v, err := encodeResult(v)
	if err != nil {
		return v, aboutStep(a, name, invalid("%w", err))
	}
	err = recordStep(a, name, b)
	done = err == nil
	return v, aboutStep(a, name, err)
}

func aboutStep(a *Attempt, name string, err error) error {
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

func (c *claim) boundStep(name string) string { return bound(c.entry) + "/" + name }

// recordedStep returns the value of a step that was recorded.
func recordedStep(a *Attempt, name string) (value []byte, found bool, err error) {
	if err = a.lock(); err != nil {
		return nil, false, err
	}
	defer func() { err = a.lost(err) }() // as rewrite
	defer a.own.turn.free()
	return a.own.step(a.Context(), name)
}

// recordStep adds a step to the record.
func recordStep(a *Attempt, name string, value []byte) error {
	codecs := a.store.reader.codecs
	stored, err := codecs.encode(codecs.own, value, a.boundStep(name))
	if err != nil {
		return err
	}
	return a.rewrite(func(r *record.Attempt) error {
		steps, ok := record.DecodeSteps(r.Body)
		if !ok {
			return ErrUnreadable
		}
		r.Body = record.EncodeSteps(append(steps, record.Step{Name: name, Codec: codecs.own, Value: stored}))
		if len(r.Body) > maxSteps {
			return fmt.Errorf("%w: the steps have %d bytes together, more than %d", ErrTooLarge, len(r.Body), maxSteps)
		}
		return nil
	})
}
