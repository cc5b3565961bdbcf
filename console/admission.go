package console

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/etcdkit/etcdkit/internal/webguard"
)

// Bounds of a request.
const (
	formSize     = 256 << 10 // bytes of the body of an action
	formBound    = 5 * time.Second
	mostRefusals = 10 // actions whose refusals are logged, in a second
)

// ServeHTTP implements http.Handler.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	webguard.SetHeaders(h.Set, r.Header.Get("Sec-Fetch-Dest"))
	if err := webguard.Hosts(c.opts.Hosts).Refuse(r.Host); err != nil {
		if !reads(r) {
			c.logRefusal(r, err)
		}
		http.Error(w, err.Error(), http.StatusMisdirectedRequest)
		return
	}
	form := readForm(w, r)
	answer := &held{ResponseWriter: w}
	select {
	case c.viewers <- struct{}{}:
		c.route(answer, r, form)
	default:
		err := errors.New("too many requests at the same time (Options.MaxViewers)")
		if !reads(r) {
			c.logRefusal(r, err)
		}
		h.Set("Retry-After", "2")
		http.Error(answer, err.Error(), http.StatusServiceUnavailable)
	}
	answer.send()
}

// readForm reads the form of an action, before the action takes the place of a viewer: a slow sender would keep it.
// The deadline of a body that was not read stays until the answer is sent, since the server may read what is left of it.
// With one that was read it ends: the server watches the connection until the answer is sent, and would take the
// deadline for the end of that.
func readForm(w http.ResponseWriter, r *http.Request) error {
	if reads(r) {
		return nil
	}
	if r.PostForm != nil { // what is around the handler has read it
		return formType(r)
	}
	connection := http.NewResponseController(w)
	_ = connection.SetReadDeadline(time.Now().Add(formBound)) // below a writer that has none, those of the server are left
	r.Body = http.MaxBytesReader(w, r.Body, formSize)
	err := formType(r)
	if err == nil {
		err = r.ParseForm()
	}
	if err != nil {
		w.Header().Set("Connection", "close") // else the server would wait for the rest before it answers
		return badRequest{fmt.Errorf("read the form: %w", err)}
	}
	_ = connection.SetReadDeadline(time.Time{})
	return nil
}

// errFormType is the error of a body that is no form of a page: http.Request.ParseForm would leave it unread.
var errFormType = errors.New("an action is a POST with the Content-Type application/x-www-form-urlencoded, as the pages of this console send it")

// formType returns an error if the body is not of the type that the pages of the console send.
func formType(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" || r.Method != http.MethodPost {
		return errFormType
	}
	return nil
}

// reads reports whether a request asks for a page.
func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// held is an answer that is sent when its request has left the place of a viewer: a slow receiver would keep it.
type held struct {
	http.ResponseWriter // for its header
	code                int
	body                bytes.Buffer
}

func (h *held) WriteHeader(code int)        { h.code = code }
func (h *held) Write(b []byte) (int, error) { return h.body.Write(b) }

func (h *held) send() {
	if h.code != 0 {
		h.ResponseWriter.WriteHeader(h.code)
	}
	_, _ = h.body.WriteTo(h.ResponseWriter)
}

// route answers a request that has the place of a viewer, and gives the place up. form is the failure of readForm.
func (c *console) route(w http.ResponseWriter, r *http.Request, form error) {
	defer func() { <-c.viewers }()
	if !reads(r) {
		if err := c.cross.Check(r); err != nil || r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
			err = elsewhere(r)
			c.logRefusal(r, err)
			c.refuse(w, r, http.StatusForbidden, err)
			return
		}
	}
	if form != nil {
		c.logRefusal(r, form)
		c.refuse(w, r, status(form), form)
		return
	}
	if below := asked(r); r.URL.Path == "" && !strings.HasSuffix(below, "/") { // below http.StripPrefix, without the slash at the end
		w.Header().Set("Location", strings.TrimRight("/"+strings.TrimLeft(below, "/"), "/")+"/")
		w.WriteHeader(http.StatusSeeOther)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") { // below http.StripPrefix with a slash at its end
		rooted := *r
		at := *r.URL
		at.Path, at.RawPath = "/"+at.Path, ""
		rooted.URL = &at
		r = &rooted
	}
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path {
		// The mux would redirect to the clean path, without the one below which the console is mounted.
		http.NotFound(w, r)
		return
	}
	c.mux.ServeHTTP(w, r)
}

// elsewhere is the refusal of a form that is not from a page of the console, with what the browser has said of it.
func elsewhere(r *http.Request) error {
	return fmt.Errorf("nothing was changed: an action has to come from a page of this console, and the browser has sent Origin %q and Sec-Fetch-Site %q to the host %q; a proxy in between has to pass the Host header on", r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"), r.Host)
}

// logRefusal logs an action that was refused, and which one it is if its form was read.
func (c *console) logRefusal(r *http.Request, err error) {
	fields := []zap.Field{zap.String("path", cut(r.URL.Path, mostReason)), zap.String("from", r.RemoteAddr), zap.Error(err)}
	if r.PostForm != nil {
		fields = append(fields, c.about(r)...)
	}
	c.refusals.Warn("an action of the console was refused", fields...)
}

// asked returns the path of a request before http.StripPrefix.
func asked(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil && u.IsAbs() {
		return u.EscapedPath()
	}
	below, _, _ := strings.Cut(r.RequestURI, "?")
	return below
}
