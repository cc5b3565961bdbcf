package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/etcdkit/etcdkit/concurrency"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/schedlock"
)

//go:embed templates static
var files embed.FS

// console is a handler.
type console struct {
	sess     *concurrency.Session
	inner    *engine.Session
	opts     Options
	refusals *zap.Logger // of actions
	shared   shared
	follower follower
	viewers  chan struct{}
	cross    *http.CrossOriginProtection
	mux      *http.ServeMux
	pages    map[string]*template.Template
	now      func() time.Time

	mu    sync.Mutex
	user  *schedlock.Locker // or nil
	deeds map[string]deed   // actions that were made lately
}

// Handler returns the console of a session's namespace. It can be mounted below any path, with
// http.StripPrefix. It works until the session is closed, and needs no end of its own. It returns
// ErrInvalid if the session is nil or an option is out of range.
func Handler(sess *concurrency.Session, opts *Options) (http.Handler, error) {
	o, err := opts.withDefaults()
	if err == nil && sess == nil {
		err = fmt.Errorf("%w: the session is nil", ErrInvalid)
	}
	if err != nil {
		return nil, fmt.Errorf("new console: %w", err)
	}
	c := &console{
		sess: sess, inner: engine.Of(sess), opts: o, viewers: make(chan struct{}, o.MaxViewers), cross: http.NewCrossOriginProtection(),
		mux: http.NewServeMux(), pages: map[string]*template.Template{}, now: time.Now, deeds: map[string]deed{},
	}
	c.refusals = o.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, mostRefusals, 0)
	}))
	c.shared.session = c.inner.Context()
	c.follower = follower{
		sess: c.inner, unseen: unseenFor, ended: c.shared.drop,
		options: fleet.Options{Probe: probeEvery, Refresh: refreshEvery, Logger: o.Logger, Now: time.Now, Details: true},
	}
	for path, page := range views {
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/"+page.template)
		if err != nil {
			return nil, fmt.Errorf("new console: %w", err)
		}
		c.pages[path] = t
		pattern := "GET /" + path
		if path == "" {
			pattern += "{$}"
		}
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.view(w, r, path, page) })
	}
	c.mux.HandleFunc("GET /static/{name}", c.static)
	c.mux.HandleFunc("POST /action", c.act)
	return c, nil
}

// static serves the style, the script and the icon.
func (c *console) static(w http.ResponseWriter, r *http.Request) {
	file := "static/" + r.PathValue("name")
	if _, err := fs.Stat(files, file); err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	if text, err := files.ReadFile(file); err == nil { // files of a program have no time by which a browser could ask
		w.Header().Set("ETag", tagOf(text))
	}
	http.ServeFileFS(w, r, files, file)
}

// frame is what every page has.
type frame struct {
	Title     string
	Namespace string
	AsOf      time.Time
	// Unconfirmed says why etcd has not confirmed what is shown since; "" if it has.
	Unconfirmed string
	Live        bool // the script reads it again
	Data        any
	Done        string // what an action has done, in words
}

// view answers with a page.
func (c *console) view(w http.ResponseWriter, r *http.Request, path string, v view) {
	q := request{Request: r, console: c}
	if err := checkName(q.name()); err != nil {
		c.refuse(w, r, status(err), err)
		return
	}
	if err := c.opts.may(r, Action{Verb: Read, Name: v.subject(q)}); err != nil {
		c.refuse(w, r, http.StatusForbidden, err)
		return
	}
	c.follower.follow()
	data, st, err := v.read(q)
	if err != nil {
		c.refuse(w, r, status(err), err)
		return
	}
	if st.unconfirmed == "" {
		st.unconfirmed = c.follower.outage()
	}
	state, err := json.Marshal(data)
	if err != nil {
		c.refuse(w, r, http.StatusInternalServerError, err)
		return
	}
	today := c.now().UTC().Format(time.DateOnly) // of which times are shown without their date
	tag := tagOf(append(append(append(state, st.unconfirmed...), today...), r.URL.RawQuery...))
	w.Header().Set("ETag", tag)
	w.Header().Set("X-As-Of", st.asOf.UTC().Format(time.RFC3339Nano))
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	page := frame{Title: v.title(q), Namespace: c.namespace(), AsOf: st.asOf, Unconfirmed: st.unconfirmed, Live: v.live, Data: data, Done: c.done(r.FormValue("done"))}
	c.render(w, r, path, http.StatusOK, page)
}

// tagOf returns the ETag of a text.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// matches reports whether an If-None-Match has a tag, by the weak comparison of RFC 9110, 13.1.2: a proxy that
// compresses pages makes their tags weak.
func matches(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if strings.TrimPrefix(strings.TrimSpace(one), "W/") == tag {
			return true
		}
	}
	return false
}

// render answers with a page.
func (c *console) render(w http.ResponseWriter, r *http.Request, path string, code int, page frame) {
	var out bytes.Buffer
	if err := c.pages[path].Execute(&out, page); err != nil {
		c.refuse(w, r, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = out.WriteTo(w)
}

// namespace is the name of the session's namespace, as its keys show it.
func (c *console) namespace() string { return c.sess.NamespacePrefix() }

// refusal is what is shown in place of a page.
type refusal struct {
	Text string
	Back string // a further link, or ""
}

// refuse answers with an error.
func (c *console) refuse(w http.ResponseWriter, r *http.Request, code int, err error) {
	c.refuseTo(w, r, code, err, "")
}

// refuseTo is refuse, with a link.
func (c *console) refuseTo(w http.ResponseWriter, r *http.Request, code int, err error, back string) {
	if code >= http.StatusInternalServerError {
		c.opts.Logger.Warn("the console could not answer", zap.String("path", r.URL.Path), zap.Error(err))
	}
	w.Header().Del("ETag")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	f := frame{Title: http.StatusText(code), Data: refusal{err.Error(), back}, Live: code >= http.StatusInternalServerError && r.Method == http.MethodGet}
	if c.opts.may(r, Action{Verb: Read}) == nil {
		f.Namespace = c.namespace()
	}
	w.WriteHeader(code)
	_ = failure.Execute(w, f)
}

var failure = template.Must(template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/failure.html"))

// notFound is an error of a page about something that etcd does not have.
type notFound struct{ error }

// badRequest is an error of a request that no page of the console makes.
type badRequest struct{ error }

func (e badRequest) Unwrap() error { return e.error }

// status returns the HTTP status of an error.
func status(err error) int {
	var missing notFound
	var bad badRequest
	var no forbidden
	var other changed
	var huge *http.MaxBytesError
	switch {
	case errors.As(err, &huge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errFormType):
		return http.StatusUnsupportedMediaType
	case errors.Is(err, os.ErrDeadlineExceeded):
		return http.StatusRequestTimeout
	case errors.As(err, &no):
		return http.StatusForbidden
	case errors.As(err, &other):
		return http.StatusConflict
	case errors.As(err, &missing):
		return http.StatusNotFound
	case errors.As(err, &bad), errors.Is(err, concurrency.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, concurrency.ErrClosed), errors.Is(err, errBusy):
		return http.StatusServiceUnavailable
	default:
		return http.StatusBadGateway
	}
}
