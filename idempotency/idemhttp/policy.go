package idemhttp

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/etcdkit/etcdkit/idempotency"
	"github.com/etcdkit/etcdkit/idempotency/internal/middleware"
)

// Policy is the document that a PolicyHandler publishes: the rules for clients.
type Policy struct {
	Header            string   `json:"header"`
	Required          bool     `json:"required"`
	Methods           []string `json:"methods"`
	Format            string   `json:"format"`
	MaxLength         int      `json:"maxLength"`
	Expiration        string   `json:"expiration"`
	ExpirationSeconds int64    `json:"expirationSeconds"`
	Fingerprint       string   `json:"fingerprint"`
	InProgress        string   `json:"inProgress"`
	NotFinal          string   `json:"notFinal"`         // what follows a response with a status that is not final
	NotFinalStatuses  string   `json:"notFinalStatuses"` // such as "408, 500 to 599"
	ReplayHeader      string   `json:"replayHeader"`
	MaxRequestBytes   int64    `json:"maxRequestBytes"`
	MaxResponseBytes  int      `json:"maxResponseBytes"`
	NotRecorded       []string `json:"notRecordedHeaders"`
	Errors            []Rule   `json:"errors"`
}

// Rule is a kind of Problem.
type Rule struct {
	Code      Code   `json:"code"`
	Status    int    `json:"status"`
	Title     string `json:"title"`
	Retryable bool   `json:"retryable"`
}

// PolicyHandler returns a handler that publishes the rules of a Middleware with the same store
// and options: the specification, expiry included, that the draft demands of a resource (§2.3,
// §2.5.2). It answers with JSON if the request's Accept header has it, and with HTML otherwise.
// The document has the store's Retain and OnLost, not those that Options.Each returns, and what Options.OnStatus says of
// each status, not what handlers say by Decide. PolicyHandler returns
// idempotency.ErrInvalid where Middleware does.
func PolicyHandler(store *idempotency.Store, opts *Options) (http.Handler, error) {
	c, err := configure("policy handler", store, opts)
	if err != nil {
		return nil, err
	}
	p := c.policy()
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	if err := page.Execute(&html, p); err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Add("Vary", "Accept")
		h.Set("Cache-Control", "max-age=300")
		if strings.Contains(r.Header.Get("Accept"), "json") {
			h.Set("Content-Type", "application/json")
			_, _ = w.Write(append(slices.Clip(text), '\n'))
			return
		}
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Language", "en")
		_, _ = w.Write(html.Bytes())
	}), nil
}

func (c *config) policy() Policy {
	keep := c.shared.Store.Options().Retain
	p := Policy{
		Header: c.Header, Required: !c.Optional, Methods: c.Methods, MaxLength: middleware.MaxKey,
		Format:     `A String of Structured Fields (RFC 9651), such as "8e03978e-40d5-43dd-bc93-6894a57f9324", unique for each request.`,
		Expiration: fmt.Sprintf("A key and its response are kept for at least %v after the request was done.", keep), ExpirationSeconds: int64(keep / time.Second),
		Fingerprint:  "A repetition has the same host, method, path, query, media type and content as the first request. JSON, multipart forms and messages of protobuf may be encoded anew.",
		InProgress:   "A repetition of a request in progress is answered with 409 and Retry-After.",
		ReplayHeader: c.ReplayedHeader, MaxRequestBytes: c.MaxRequest, MaxResponseBytes: c.shared.MaxResponse,
		NotRecorded: slices.Sorted(maps.Keys(c.never)),
	}
	if !c.Strict {
		p.Format += " The quotes may be left out."
	}
	if c.custom {
		p.Fingerprint = "A repetition has the same host and content as the first request, in the parts that this service compares."
	}
	if c.Wait > 0 {
		p.InProgress = fmt.Sprintf("A repetition of a request in progress waits for its response, and is answered with 409 and Retry-After after %v.", c.Wait)
	}
	p.NotFinal = "After a response with one of these statuses, the request executes again when it is repeated."
	refuses := c.shared.Store.Options().OnLost == idempotency.Refuse
	if refuses {
		p.NotFinal = "After a response with one of these statuses it may be unknown what was done. Then a repetition does not execute: it is refused until an operator has decided."
	}
	p.NotFinalStatuses = c.notFinal()
	for code, pr := range problems {
		pr.Retryable = pr.Retryable && !(refuses && code == CodeConflict)
		p.Errors = append(p.Errors, Rule{Code: code, Status: pr.Status, Title: pr.Title, Retryable: pr.Retryable})
	}
	slices.SortFunc(p.Errors, func(a, b Rule) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	return p
}

// notFinal returns the statuses that are not recorded, unless a handler says so.
func (c *config) notFinal() string {
	var spans []string
	from := 0
	for status := 200; status <= 600; status++ {
		open := status < 600 && cmp.Or(c.OnStatus(status), middleware.EndOfStatus(status).Action()) != idempotency.Remember
		switch {
		case open && from == 0:
			from = status
		case !open && from == status-1 && from != 0:
			spans, from = append(spans, strconv.Itoa(from)), 0
		case !open && from != 0:
			spans, from = append(spans, fmt.Sprintf("%d to %d", from, status-1)), 0
		}
	}
	return strings.Join(spans, ", ")
}

var page = template.Must(template.New("policy").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Header}}</title></head><body>
<h1>{{.Header}}</h1>
<p>Requests with the methods {{range $i, $m := .Methods}}{{if $i}}, {{end}}{{$m}}{{end}} {{if .Required}}need{{else}}may have{{end}} this header.
A request executes once for each key; a repetition gets the same response, with the header {{.ReplayHeader}}: true.</p>
<dl>
<dt>Format</dt><dd>{{.Format}} At most {{.MaxLength}} characters.</dd>
<dt>Expiry</dt><dd>{{.Expiration}}</dd>
<dt>Repetitions</dt><dd>{{.Fingerprint}}</dd>
<dt>While the request is in progress</dt><dd>{{.InProgress}}</dd>
<dt>Statuses that are not final</dt><dd>{{if .NotFinalStatuses}}{{.NotFinalStatuses}}. {{.NotFinal}}{{else}}none{{end}}</dd>
<dt>Sizes</dt><dd>A request has at most {{.MaxRequestBytes}} bytes. A response larger than {{.MaxResponseBytes}} bytes is repeated without its body.</dd>
<dt>Headers that are not repeated</dt><dd>{{range $i, $m := .NotRecorded}}{{if $i}}, {{end}}{{$m}}{{end}}</dd>
</dl>
<table><tr><th>status</th><th>code</th><th>title</th><th>retryable</th></tr>
{{range .Errors}}<tr id="{{.Code}}"><td>{{.Status}}</td><td>{{.Code}}</td><td>{{.Title}}</td><td>{{if .Retryable}}yes{{else}}no{{end}}</td></tr>
{{end}}</table>
</body></html>
`))
