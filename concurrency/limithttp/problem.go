package limithttp

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/etcdkit/etcdkit/concurrency/internal/middleware"
)

// Problem is an answer of the Middleware in place of the handler's response (RFC 9457). Type and
// ViolatedPolicies are those of draft-ietf-httpapi-ratelimit-headers-11 for CodeKeyFull,
// CodeTotalFull and CodeRateExceeded, and empty otherwise.
type Problem struct {
	Type             string   `json:"type,omitempty"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	Code             Code     `json:"code"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// Code identifies a kind of Problem.
type Code string

// The codes.
const (
	CodeHeld         Code = "held"          // 409: another request has the ID given in Options.Each
	CodeKeyFull      Code = "key-full"      // 429: as many requests of the key run as its limit allows
	CodeInternal     Code = "internal"      // 500: an option is wrong, or a limit differs from the stored one
	CodeEnded        Code = "ended"         // 503: the request's context has ended while it waited
	CodeLost         Code = "lost"          // 500: the permit was lost while the handler ran; 503: the place in the queue was
	CodeRateExceeded Code = "rate-exceeded" // 503: the fleet may not begin another request now (Options.Rate)
	CodeTotalFull    Code = "total-full"    // 503: as many requests of all keys run as the total, or the limit of concurrency.Single, allows
	CodeUnavailable  Code = "unavailable"   // 503: etcd does not answer, the session is closed, or there are too many requests or keys
)

// problems are the answers by code.
var problems = map[Code]Problem{
	CodeHeld:         {Status: 409, Title: "The request is running"},
	CodeKeyFull:      {Status: 429, Title: "Too many requests are running", Type: "https://iana.org/assignments/http-problem-types#quota-exceeded"},
	CodeInternal:     {Status: 500, Title: "Internal Server Error"},
	CodeEnded:        {Status: 503, Title: "The request waited too long"},
	CodeLost:         {Status: 503, Title: "The request was interrupted", Detail: "It has lost its place in the queue, and has not begun."},
	CodeRateExceeded: {Status: 503, Title: "The service has begun too many requests", Type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
	CodeTotalFull:    {Status: 503, Title: "The service is at its capacity", Type: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"},
	CodeUnavailable:  {Status: 503, Title: "Service Unavailable"},
}

// refuse writes the problem of a refusal. ran says whether the handler was called.
func (c *config) refuse(w http.ResponseWriter, r *http.Request, by middleware.Refusal, ran bool) {
	p := problems[Code(by.Reason)]
	p.Code = Code(by.Reason)
	h := w.Header()
	if ran { // no 503, and no Retry-After of the handler's own either: clients, and proxies by themselves, would repeat it
		p.Status, p.Detail = http.StatusInternalServerError, "It may have taken effect."
		h.Del("Retry-After")
	}
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	switch p.Code {
	case CodeKeyFull:
		p.ViolatedPolicies = []string{c.Policy}
		h.Add("RateLimit-Policy", `"`+c.Policy+`";q=`+strconv.Itoa(by.Limit)+`;qu="concurrent-requests"`)
		h.Add("RateLimit", `"`+c.Policy+`";r=0`)
	case CodeTotalFull: // its size is the service's own concern
		p.ViolatedPolicies = []string{c.Policy + "-total"}
	case CodeRateExceeded: // and so is the rate of the fleet
		p.ViolatedPolicies = []string{c.Policy + "-rate"}
	}
	if by.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(middleware.Seconds(by.RetryAfter), 10))
	}
	if c.OnProblem != nil {
		c.OnProblem(w, r, p)
		return
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Language", "en")
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(b)
}

// ofRepresentation are the fields that describe a body, under their keys in an http.Header.
var ofRepresentation = [...]string{
	"Accept-Ranges", "Content-Digest", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Range",
	"Etag", "Last-Modified", "Repr-Digest", "Trailer",
}

// described are those fields as they were before the handler: of a middleware in front, such as one that encodes what is
// written. It is nil if there were none.
type described http.Header

// ofFront returns the fields of a header that is not the handler's yet.
func ofFront(h http.Header) (d described) {
	if len(h) == 0 {
		return nil
	}
	for _, name := range ofRepresentation {
		if values, has := h[name]; has {
			if d == nil {
				d = described{}
			}
			d[name] = slices.Clone(values)
		}
	}
	return d
}

// restore has a header describe what is in front of the handler again, and not the handler's own body, which is not sent.
func (d described) restore(h http.Header) {
	for _, name := range ofRepresentation {
		if values, has := d[name]; has {
			h[name] = values
		} else {
			delete(h, name)
		}
	}
}
