package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/etcdkit/etcdkit/internal/commit"
)

// login bounds how often the calls of one client log in: a login costs etcd tens of milliseconds of processor
// time, right or wrong, and etcd's client makes one for each call whose token is not accepted and for each
// stream.
//
// If etcd asks for a login, as it does of the whole fleet when authentication is enabled, one stream of
// renewals, or else one call with time enough, gets the new token, and the other calls wait for that. If etcd
// refuses the login, one call at a time is sent, at growing distances, and the others return the refusal that
// is known, without a request. The first call that etcd lets in ends both.
//
// It is safe for concurrent use.
type login struct {
	client *clientv3.Client

	mu      sync.Mutex
	refused error           // nil while etcd lets calls in, as far as is known
	since   time.Time       // when that began
	next    time.Time       // when the next call may be sent
	trying  bool            // one is under way
	asked   chan struct{}   // closed when a login that etcd has asked for is done; nil while it asks for none
	opening int             // streams of renewals that are being opened
	opened  time.Time       // when the latest of them began
	users   int             // sessions that are open
	used    context.Context // ends when the last of them has ended
	unused  context.CancelFunc
	passed  func(error) // what enter returns to most calls, or nil before the first
}

// apart is the least time between two streams of renewals of one client whose login is refused.
const apart = time.Second

// errAwaited is why a call that waited for a login was not sent.
var errAwaited = errors.New("etcd asks for a login, which has not ended")

// logins are those of the clients that are in use: sessions on one client have one.
var logins sync.Map // from *clientv3.Client to *login

func loginOf(client *clientv3.Client) *login {
	l, known := logins.LoadOrStore(client, &login{client: client})
	if !known {
		context.AfterFunc(client.Ctx(), func() { logins.Delete(client) })
	}
	return l.(*login) //nolint:forcetypeassert // nothing else is stored
}

// use says that a session begins, and returns what says that it has ended.
func (l *login) use() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users == 1 {
		l.used, l.unused = context.WithCancel(l.client.Ctx())
	}
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users--; l.users == 0 {
			l.unused()
			l.done()
		}
	})
}

// enter returns what records the end of a call that is to be sent, or why it is not sent: the refusal that is
// known, or ctx's error while it waited for another's login.
func (l *login) enter(ctx context.Context) (left func(error), err error) {
	for {
		left, asked, err := l.turn(time.Now())
		if asked == nil {
			return left, err
		}
		select {
		case <-asked:
		case <-ctx.Done():
			return nil, commit.Unsent(fmt.Errorf("%w: %w", errAwaited, ctx.Err()))
		}
	}
}

// turn is enter without the wait: asked is what to wait for, if that is not nil.
func (l *login) turn(now time.Time) (left func(error), asked chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.refused != nil && (l.trying || now.Before(l.next)):
		return nil, nil, l.refused
	case l.refused != nil:
		return l.try(), nil, nil
	case l.asked != nil:
		return nil, l.asked, nil
	}
	if l.passed == nil {
		l.passed = func(err error) { l.left(err, false) }
	}
	return l.passed, nil, nil
}

// open is enter for a stream of renewals, whose lease may still be trusted: it waits for nothing, and has a pause of
// its own. While etcd refuses the login, the streams of a client's sessions are opened at distances.
func (l *login) open() (opened func(error), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.refused != nil && (l.trying || now.Sub(l.opened) < apart) {
		return nil, l.refused
	}
	l.opening++
	l.opened = now
	left := func(err error) { l.left(err, false) }
	if l.refused != nil {
		left = l.try()
	}
	return func(err error) {
		l.mu.Lock()
		l.opening--
		l.mu.Unlock()
		left(err)
	}, nil
}

// try returns what records the end of the one call that is sent while the login is refused. l.mu is held.
func (l *login) try() (left func(error)) {
	l.trying = true
	return func(err error) { l.left(err, true) }
}

// left records how a call has ended.
func (l *login) left(err error, tried bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trying = l.trying && !tried
	now, refused := time.Now(), commit.NoLogin(err) && !l.asks(err)
	switch {
	case refused && l.refused == nil:
		l.refused, l.since, l.next = err, now, now.Add(untilLogin(0))
		l.done()
	case refused && tried:
		l.refused, l.next = err, now.Add(untilLogin(now.Sub(l.since)))
	case l.asks(err) && l.asked == nil && l.refused == nil && l.users > 0: // after the last session none waits, nor logs in
		l.asked = make(chan struct{})
		go l.again(l.used, l.asked)
	case !refused && !commit.NeedsLogin(err) && !commit.Transient(err):
		l.refused = nil
		l.done()
	}
}

// asks reports whether etcd asks for a login that the client can make.
func (l *login) asks(err error) bool {
	return commit.NeedsLogin(err) && l.client.Username != ""
}

// again logs in, by a read, unless a stream of renewals does, until a call has brought an answer. Its bound is
// longer than that of other calls, and grows: where a whole fleet logs in at once each login takes long, and one
// that is given up has cost etcd as much as another.
func (l *login) again(used context.Context, asked <-chan struct{}) {
	wait := commit.Backoff{Least: 500 * time.Millisecond, Most: 2 * time.Second}
	for bound := 2 * commit.CallTimeout; ; {
		select {
		case <-asked:
			return
		case <-used.Done():
			return
		case <-time.After(wait.Next()):
		}
		if l.opens() {
			wait.Reset()
			continue
		}
		ctx, cancel := context.WithTimeout(used, bound)
		_, err := l.client.Get(ctx, "etcdkit/login") // that it may not be read is an answer
		cancel()
		l.left(err, false)
		bound = min(2*bound, commit.DeniedPause)
	}
}

// opens reports whether a stream of renewals is being opened.
func (l *login) opens() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.opening > 0
}

// pending reports whether the client logs in, because etcd has asked for that, or may not.
func (l *login) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked != nil || l.refused != nil
}

// done ends the wait for a login. l.mu is held.
func (l *login) done() {
	if l.asked != nil {
		close(l.asked)
		l.asked = nil
	}
}

// untilLogin returns how long the next login waits once they have been refused for some time: about as long
// again. So once an operator has mended it, that takes no longer than the fault has lasted.
func untilLogin(lasted time.Duration) time.Duration {
	d := min(max(lasted, 250*time.Millisecond), commit.DeniedPause)
	return d/2 + rand.N(d/2)
}

// LetIn makes a call that goes neither by KV nor by Source, unless etcd refuses the login of the session's client:
// then it returns that refusal without a request, see login.
func (s *Session) LetIn(ctx context.Context, call func() error) error {
	left, err := s.kv.login.enter(ctx)
	if err == nil {
		err = call()
		left(err)
	}
	return err
}
