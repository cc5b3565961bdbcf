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
	"github.com/etcdkit/etcdkit/internal/audit"
	"github.com/etcdkit/etcdkit/internal/engine"
	"github.com/etcdkit/etcdkit/internal/fleet"
	"github.com/etcdkit/etcdkit/internal/jsonlist"
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
	history  history
	trail    *audit.Trail
	streams  streamCheck
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
		err = engine.Invalid("the session is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("console: new handler: %w", err)
	}
	c := &console{
		sess: sess, inner: engine.Of(sess), opts: o, viewers: make(chan struct{}, o.MaxViewers), cross: http.NewCrossOriginProtection(),
		mux: http.NewServeMux(), now: time.Now, deeds: map[string]deed{},
	}
	c.refusals = o.Logger.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, mostRefusals, 0)
	}))
	c.shared.session = c.inner.Context()
	c.history.every = sampleEvery
	c.trail = audit.New(c.inner, o.Logger)
	c.follower = follower{
		sess: c.inner, unseen: unseenFor, ended: c.shared.drop, sample: c.history.follow,
		options: fleet.Options{Probe: probeEvery, Refresh: refreshEvery, Logger: o.Logger, Now: time.Now, Details: true},
	}
	if c.pages, err = templates(); err != nil {
		return nil, fmt.Errorf("console: new handler: %w", err)
	}
	for path, page := range views {
		pattern := "GET /" + path
		if path == "" {
			pattern += "{$}"
		}
		c.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { c.view(w, r, path, page) })
	}
	c.mux.HandleFunc("GET /static/{name}", c.static)
	c.mux.HandleFunc("GET /alert", func(w http.ResponseWriter, r *http.Request) { alertOf(request{r, c}).lead(w) })
	c.mux.HandleFunc("POST /action", c.act)
	c.mux.HandleFunc("POST /bulk", func(w http.ResponseWriter, r *http.Request) { actOnMany(c, w, r) })
	c.mux.HandleFunc("GET /", c.missing)
	return c, nil
}

// templates returns those of the pages, by path. They are read once, for all handlers of the process.
var templates = sync.OnceValues(func() (map[string]*template.Template, error) {
	pages := map[string]*template.Template{}
	for path, page := range views {
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/queuetable.html", "templates/"+page.template)
		if err != nil {
			return nil, err
		}
		pages[path] = t
	}
	return pages, nil
})

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
	page := frame{Title: v.title(q), Namespace: c.namespace(), Tab: v.tab, Query: q.query(), AsOf: st.asOf, Unconfirmed: st.unconfirmed, Live: v.live, Side: q.sideOf(path), Data: data, JSON: q.jsonOf(v)}
	if of, ok := data.(titled); ok {
		page.Title = of.title()
	}
	state, err := json.Marshal([]any{data, page.Side})
	if err != nil {
		c.refuse(w, r, http.StatusInternalServerError, err)
		return
	}
	today := c.now().UTC().Format(time.DateOnly) // of which times are shown without their date
	asJSON := v.live && wantsJSON(r)
	tag := tagOf(fmt.Appendf(state, "%s %s %s %v", st.unconfirmed, today, r.URL.RawQuery, asJSON))
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("X-As-Of", st.asOf.UTC().Format(time.RFC3339Nano))
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if asJSON {
		c.sendJSON(w, page)
		return
	}
	page.Done = c.done(r.FormValue("done"))
	c.render(w, r, path, http.StatusOK, page)
}

// wantsJSON reports whether a request asks for the data of a page in place of the page.
func wantsJSON(r *http.Request) bool {
	return r.URL.Query().Get("format") == "json" || strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}

// sendJSON answers with the data of a page. A list without a row is [], a map without a member {}.
func (c *console) sendJSON(w http.ResponseWriter, page frame) {
	out, err := json.Marshal(struct {
		Namespace   string
		Title       string
		AsOf        time.Time
		Unconfirmed string `json:",omitempty"`
		Data        any
	}{page.Namespace, page.Title, page.AsOf.UTC(), page.Unconfirmed, jsonlist.Of(page.Data)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(out, '\n'))
}

// missing answers for a path that there is not.
func (c *console) missing(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/action" {
		w.Header().Set("Allow", http.MethodPost)
		c.refuse(w, r, http.StatusMethodNotAllowed, errors.New("an action is sent by the form of its page"))
		return
	}
	c.refuse(w, r, http.StatusNotFound, errors.New("this console has no such page: its address is wrong, or is from another release"))
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
	page.Cluster = c.opts.Cluster
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
	Up   string // as of frame
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
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]string{"Error": err.Error()})
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	up := strings.Repeat("../", max(0, strings.Count(r.URL.Path, "/")-1))
	f := frame{Title: http.StatusText(code), Up: up, Data: refusal{err.Error(), back, up}, Live: code >= http.StatusInternalServerError && r.Method == http.MethodGet}
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
