package processes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/etcdkit/etcdkit/internal/proof/history"
	"github.com/etcdkit/etcdkit/internal/proof/procs"
)

// client is one place for client processes: when one is killed, the next takes it.
type client struct {
	run   *run
	index int

	mu    sync.Mutex
	life  int
	proc  *procs.Process
	files []string
}

// name is that of the present process: each has its own.
func (c *client) name() string { return fmt.Sprintf("c%d.%d", c.index, c.life) }

// sessions returns the names of a process's sessions. They are the clients of the
// history.
func (c *client) sessions(process string) (names []string) {
	for i := range c.run.Sessions {
		names = append(names, fmt.Sprintf("%s.%d", process, i))
	}
	return names
}

// start starts a process.
func (c *client) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	s := settings{
		Seed: c.run.Seed, Name: c.name(), Sessions: c.sessions(c.name()), Control: c.run.socket,
		History: filepath.Join(c.run.Dir, c.name()+".jsonl"),
		TTL:     c.run.TTL, Margin: margin, Rate: max(1, c.run.Rate/c.run.Clients), Proxied: c.proxied(),
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	build, err := c.build()
	if err != nil {
		return err
	}
	c.proc, err = procs.Run(procs.Command{
		Name: s.Name, Path: build, Log: filepath.Join(c.run.Dir, s.Name+".log"),
		Env: []string{WorkerEnv + "=" + string(raw), "EMBEDTEST_ENDPOINTS=" + strings.Join(c.endpoints(), ",")},
	})
	if err == nil {
		c.files = append(c.files, s.History)
	}
	return err
}

// build returns the program of the present process: this one, or the other build in every second place and at every
// second life, so that each place changes from one to the other and back with every kill.
func (c *client) build() (string, error) {
	if c.run.Beside != "" && c.other(c.life) {
		return c.run.Beside, nil
	}
	return os.Executable()
}

// other reports whether a life of the client is one of the other build.
func (c *client) other(life int) bool { return (c.index+life)%2 == 0 }

// besides returns how many client processes were of the other build.
func (r *run) besides() (n int) {
	for _, c := range r.clients {
		c.mu.Lock()
		for life := 1; r.Beside != "" && life <= c.life; life++ {
			if c.other(life) {
				n++
			}
		}
		c.mu.Unlock()
	}
	return n
}

// proxied reports whether the client is behind the proxy.
func (c *client) proxied() bool { return c.run.proxy != nil && c.index == 0 }

// endpoints are those of the servers, or of the proxy.
func (c *client) endpoints() []string {
	if c.proxied() {
		return []string{c.run.proxy.Endpoint()}
	}
	return c.run.cluster.Endpoints()
}

// present returns the present process, and its name.
func (c *client) present() (*procs.Process, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proc, c.name()
}

// histories returns the files of all processes that there were.
func (c *client) histories() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.files...)
}

// kill kills the process, in the middle of whatever it does, and starts the next.
func (c *client) kill() error {
	p, name := c.present()
	for _, s := range c.sessions(name) {
		c.run.recorder.Begin(history.Event{Name: ClientKilled, Client: s}) // for ever
	}
	p.Kill()
	return c.start()
}

// pause stops the process, and returns what continues it. That reports whether there was
// something to continue: it may have been killed.
func (c *client) pause() (resume func() bool, err error) {
	p, name := c.present()
	var finishes []func()
	for _, s := range c.sessions(name) {
		finishes = append(finishes, c.run.recorder.Begin(history.Event{Name: ClientPaused, Client: s}))
	}
	finish := func() {
		for _, f := range finishes {
			f()
		}
	}
	if err := p.Pause(); err != nil {
		finish()
		return nil, err
	}
	return func() bool {
		alive := !p.Ended()
		_ = p.Resume()
		finish()
		return alive
	}, nil
}
