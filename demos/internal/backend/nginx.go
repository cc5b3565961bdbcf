package backend

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"
)

// nginx is a Front that runs nginx, with its defaults: it passes a request to another server only if it could not
// connect to the first one, and a request whose server dies gets 502. It reaches the server in a place by a symbolic
// link to the socket of that server, so another one takes the place at once, without a reload.
type nginx struct {
	program, version string
	dir              string
	places           int
	leastBusy        bool

	cmd   *exec.Cmd
	said  bytes.Buffer  // on its standard error; to be read when it has ended
	ended chan struct{} // closed then
}

// nginxConf is its configuration. All its files are in one folder. One process serves, as the user of the demo; a
// server that is dead is tried for each request, so that another one in its place gets requests at once.
var nginxConf = template.Must(template.New("nginx.conf").Parse(`daemon off;
master_process off;
pid {{.Dir}}/nginx.pid;
error_log {{.Dir}}/error.log;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path {{.Dir}}/client;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	upstream servers {
		{{if .LeastBusy}}least_conn;{{end}}
{{range .Places}}		server unix:{{.}} max_fails=0;
{{end}}	}
	server {
		listen {{.Address}};
		location / { proxy_pass http://servers; }
	}
}
`))

func newNginx(program string, places int, leastBusy bool) (*nginx, error) {
	said, err := exec.Command(program, "-v").CombinedOutput()
	version, found := strings.CutPrefix(strings.TrimSpace(string(said)), "nginx version: ")
	if err != nil || !found {
		return nil, fmt.Errorf("ask %s for its version: %v, %.200q", program, err, said)
	}
	dir, err := os.MkdirTemp("", "front-")
	if err != nil {
		return nil, err
	}
	return &nginx{program: program, version: version, dir: dir, places: places, leastBusy: leastBusy}, nil
}

func (x *nginx) Name() string { return x.version }

func (x *nginx) Sockets() string { return x.dir }

// place returns the name of the symbolic link for a place.
func (x *nginx) place(i int) string { return filepath.Join(x.dir, fmt.Sprintf("place-%d", i)) }

func (x *nginx) Set(i int, url string) error {
	if url == "" {
		return os.Remove(x.place(i))
	}
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	if err != nil {
		return err
	}
	next := x.place(i) + ".next"
	if err := os.Symlink(socket(x.dir, port), next); err != nil {
		return err
	}
	return os.Rename(next, x.place(i))
}

// tries is how often nginx is started: another process can take the port that was found free for it.
const tries = 3

func (x *nginx) Listen() (url string, err error) {
	for range tries {
		var address string
		if address, err = free(); err != nil {
			return "", err
		}
		if err = x.start(address); err == nil {
			return "http://" + address, nil
		}
	}
	return "", err
}

// free returns an address of the loopback interface on which nothing listens.
func free() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// start starts nginx, and returns when it listens on an address.
func (x *nginx) start(address string) error {
	settings := struct {
		Dir, Address string
		LeastBusy    bool
		Places       []string
	}{Dir: x.dir, Address: address, LeastBusy: x.leastBusy}
	for i := range x.places {
		settings.Places = append(settings.Places, x.place(i))
	}
	var conf bytes.Buffer
	if err := nginxConf.Execute(&conf, settings); err != nil {
		return err
	}
	name := filepath.Join(x.dir, "nginx.conf")
	if err := os.WriteFile(name, conf.Bytes(), 0o600); err != nil {
		return err
	}
	x.said.Reset()
	x.cmd, x.ended = exec.Command(x.program, "-p", x.dir, "-c", name), make(chan struct{})
	x.cmd.Stderr = &x.said
	if err := x.cmd.Start(); err != nil {
		x.cmd = nil
		return err
	}
	go func() {
		defer close(x.ended)
		_ = x.cmd.Wait() // that it has ended is the error
	}()
	return x.listens(address)
}

// listens waits until nginx accepts connections.
func (x *nginx) listens(address string) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-x.ended:
			log, _ := os.ReadFile(filepath.Join(x.dir, "error.log"))
			return fmt.Errorf("start %s: it has ended: %s%s", x.program, &x.said, log)
		case <-time.After(10 * time.Millisecond):
		}
	}
	x.stop()
	return fmt.Errorf("start %s: it does not listen on %s", x.program, address)
}

func (x *nginx) stop() {
	if x.cmd != nil {
		_ = x.cmd.Process.Kill() // or it has ended
		<-x.ended
		x.cmd = nil
	}
}

func (x *nginx) Close() {
	x.stop()
	_ = os.RemoveAll(x.dir)
}
