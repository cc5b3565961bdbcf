// Package webguard protects a page for operators in their browsers: what every answer says to a browser, whatever it is
// an answer to, and the names by which the page is reached. The console and the command around it share it.
package webguard

import (
	"fmt"
	"net"
	"slices"
	"strings"
)

// policy is the Content-Security-Policy of every answer: nothing inline, nothing from elsewhere, in no
// frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// SetHeaders calls set for each header of every answer. destination is the request's Sec-Fetch-Dest.
func SetHeaders(set func(name, value string), destination string) {
	set("Content-Security-Policy", policy)
	set("X-Content-Type-Options", "nosniff")
	set("Referrer-Policy", "same-origin") // with no-referrer, a browser sends the page's own forms with "Origin: null"
	set("Cross-Origin-Resource-Policy", "same-origin")
	if destination != "" { // without it, the browser would ignore the header with an error: the connection is not encrypted
		set("Cross-Origin-Opener-Policy", "same-origin")
	}
	set("Cache-Control", "no-store")
}

// Hosts are the host names by which a page is reached, without ports.
type Hosts []string

// NewHosts returns these hosts; none are those of the loopback interface. It returns an error that names a host that a
// Host header cannot have.
func NewHosts(names []string) (Hosts, error) {
	if len(names) == 0 {
		names = []string{"localhost", "127.0.0.1", "[::1]"}
	}
	hosts := make(Hosts, len(names))
	for i, name := range names {
		if !isHost(name) {
			return nil, fmt.Errorf("%q, which is no host name without a port; an IPv6 address is in brackets, and there are no patterns", name)
		}
		hosts[i] = strings.ToLower(name)
	}
	return hosts, nil
}

// isHost reports whether a Host header may have that name.
func isHost(host string) bool {
	if v6, ok := strings.CutPrefix(host, "["); ok {
		v6, ok = strings.CutSuffix(v6, "]")
		return ok && strings.Contains(v6, ":") && net.ParseIP(v6) != nil
	}
	return host != "" && !strings.ContainsAny(host, "/ ,:*?@#[]") && !strings.HasSuffix(host, ".")
}

// Refuse returns an error for a Host header that names none of these: the answer to its request is 421.
func (h Hosts) Refuse(header string) error {
	host := header
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
		if strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	if !slices.Contains(h, strings.ToLower(host)) {
		return fmt.Errorf("this console is not at the host %q: Options.Hosts lists its names", header)
	}
	return nil
}
