package backend

import "flag"

// Front is the reverse proxy in front of the servers of a demo: Proxy, or an nginx.
type Front interface {
	// Name returns the name and the version of a reverse proxy that is a program of its own; empty for Proxy.
	Name() string
	// Sockets returns the folder in which each server has to listen as well, for Serve; empty if there is none.
	Sockets() string
	// Set sets the URL of the server in a place; empty for a dead one.
	Set(i int, url string) error
	// Listen begins to serve on a port of the loopback interface.
	Listen() (url string, err error)
	// Close ends what Listen has begun.
	Close()
}

// Choice is the flag -nginx: which reverse proxy a demo has.
type Choice struct{ nginx string }

// Define adds the flag.
func (c *Choice) Define(f *flag.FlagSet) {
	f.StringVar(&c.nginx, "nginx", "", "the `program` nginx, which is the reverse proxy in place of the one in this program")
}

// Front returns a reverse proxy with n places for servers, all empty. With leastBusy it chooses among the servers
// with the fewest requests in progress; else it takes them in turn. It returns an error if nginx cannot be started.
func (c Choice) Front(n int, leastBusy bool) (Front, error) {
	if c.nginx == "" {
		return NewProxy(n, leastBusy), nil
	}
	return newNginx(c.nginx, n, leastBusy)
}
