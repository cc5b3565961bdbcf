package idemhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/etcdkit/etcdkit/idempotency"
)

// ignored reports the keys of requests that pass unchanged: a client that sends a key relies on it.
// Each method is reported once with each header, so the memory that it takes is bounded.
type ignored struct{ reported sync.Map }

// effects are the methods of which a repetition can have an effect. The texts of others come from
// clients, and would fill the memory.
var effects = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// key returns the error for a request that passes although it has a key, and nil if it has none, or
// if an error for its method and header was returned before.
func (g *ignored) key(r *http.Request, o *Options) error {
	method := strings.ToUpper(r.Method)
	if _, within := idempotency.FromContext(r.Context()); within || !slices.Contains(effects, method) {
		return nil
	}
	for _, name := range []string{o.Header, defaultHeader, "X-" + defaultHeader} {
		if len(r.Header.Values(name)) == 0 {
			continue
		}
		reason := fmt.Sprintf("Options.Methods has no %s", method)
		if slices.Contains(o.Methods, method) {
			reason = "Options.Header is " + o.Header
		}
		if _, before := g.reported.LoadOrStore(method+" "+name, true); before {
			return nil
		}
		return fmt.Errorf("%s %s: the request has the header %s and passes without a claim, so it can execute twice: %s (reported once for each method and header)", method, sent(r), name, reason)
	}
	return nil
}
