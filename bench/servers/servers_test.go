package servers

import (
	"testing"
	"time"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	e, err := StartEtcd(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	before, err := e.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client, err := e.Process(1)
	if err != nil {
		t.Fatal(err)
	}
	const reads = 7
	for range reads {
		if _, err := client.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	after, err := e.Counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The server itself reads as well; the processor time of a server that starts is never zero.
	if used := after.Sub(before); used.Reads < reads || used.Reads > 2*reads || after.CPU <= 0 {
		t.Errorf("%d reads are counted as %+v of %+v", reads, used, after)
	}
}

// A request through the proxy takes a round trip longer, and several at once no more than that.
func TestProxy(t *testing.T) {
	t.Parallel()
	e, err := StartEtcd(t.Context(), t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const rtt = 50 * time.Millisecond
	p, err := StartProxy(e.At()[0], rtt)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	far := Connect([]string{p.Addr()})
	defer far.Close()
	client, err := far.Process(0)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		begun := time.Now()
		if _, err := client.Get(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < rtt {
			t.Errorf("a request took %v, less than the round trip", took)
		}
	}
	p.Close() // ends the connections, also twice
}

// A Redis that does not exist is said to be missing, and one that was given is not configured.
func TestRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_ADDR", "")
	r, err := StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if c, missing := r.Client(Always, 1); c != nil || missing != "no redis-server in PATH, and REDIS_ADDR is not set" || missing != r.Missing() {
		t.Errorf("client %v, missing %q", c, missing)
	}
	if _, err := r.Counters(t.Context(), Always); err == nil {
		t.Error("a server that does not exist has used processor time")
	}
	t.Setenv("REDIS_ADDR", "127.0.0.1:1")
	if _, err := StartRedis(t.Context(), t.TempDir()); err == nil {
		t.Error("a Redis that does not answer is accepted")
	}
}

// The processor time of Redis is that of the server and its children, and never none.
func TestProcessorTimeOfRedis(t *testing.T) {
	t.Parallel()
	const info = "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:0.25\r\nused_cpu_sys_children:1\r\nused_cpu_user_children:2\r\nused_cpu_sys_main_thread:9\r\n"
	if got, err := usedCPU(info); got != 4750*time.Millisecond || err != nil {
		t.Errorf("%v %v", got, err)
	}
	for _, wrong := range []string{"", "used_cpu_sys:much\r\n", "# CPU\r\nused_cpu_sys_main_thread:9\r\n"} {
		if got, err := usedCPU(wrong); err == nil {
			t.Errorf("%q: %v", wrong, got)
		}
	}
}
