#!/usr/bin/env bash
# Guess: in front of a process that is stopped, nginx waits the same way for a Unix socket as for a TCP port: when the queue of
#   connections is full, a request waits for proxy_connect_timeout (60 s by default) and is then sent to the next server.
# Really: over TCP it does. To a full Unix socket the connect fails at once (EAGAIN: "Resource temporarily unavailable"), so
#   each further request, a POST too, is at the next server within milliseconds. If there is no other server, it gets 502 at once.
# Version: nginx 1.22.1 of Debian 12, Linux.
# Source: connect(2), EAGAIN for nonblocking Unix sockets; nginx src/event/ngx_event_connect.c: NGX_DECLINED for it.
set -euo pipefail
d=$(mktemp -d); trap 'rm -rf "$d"' EXIT; cd "$d"
apt-get download nginx >/dev/null 2>&1 || { apt-get update >/dev/null && apt-get download nginx >/dev/null 2>&1; }
dpkg-deb -x nginx_*.deb .
./usr/sbin/nginx -v
cat > probe.py <<'P'
import http.client, http.server, socket, subprocess, sys, threading, time

d, wait = sys.argv[1], 3  # seconds, in place of nginx's 60

class Answer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass

def stopped(family, address):  # a process that does not accept: its queue of connections is filled
    s = socket.socket(family)
    s.bind(address)
    s.listen(1)
    queue = []
    while True:
        c = socket.socket(family)
        c.settimeout(0.5)
        try:
            c.connect(s.getsockname())
        except (TimeoutError, BlockingIOError):
            return s, queue
        queue.append(c)

tcp, unix = stopped(socket.AF_INET, ("127.0.0.1", 0)), stopped(socket.AF_UNIX, d + "/stopped")
good = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=good.serve_forever, daemon=True).start()
probe = socket.socket()
probe.bind(("127.0.0.1", 0))
front = probe.getsockname()[1]
probe.close()
other = "server 127.0.0.1:%d backup;" % good.server_port
conf = """daemon off; master_process off; pid %(d)s/pid; error_log %(d)s/log;
events {} http { access_log off;
client_body_temp_path %(d)s/a; proxy_temp_path %(d)s/b; fastcgi_temp_path %(d)s/c; uwsgi_temp_path %(d)s/e; scgi_temp_path %(d)s/f;
upstream tcp { server 127.0.0.1:%(tcp)d max_fails=0; %(other)s }
upstream unix { server unix:%(d)s/stopped max_fails=0; %(other)s }
upstream alone { server unix:%(d)s/stopped; }
server { listen 127.0.0.1:%(front)d; proxy_connect_timeout %(wait)ds;
location /tcp { proxy_pass http://tcp; } location /unix { proxy_pass http://unix; } location /alone { proxy_pass http://alone; } } }
""" % {"d": d, "tcp": tcp[0].getsockname()[1], "other": other, "front": front, "wait": wait}
open(d + "/conf", "w").write(conf)
nginx = subprocess.Popen([d + "/usr/sbin/nginx", "-p", d, "-c", d + "/conf"], stderr=subprocess.DEVNULL)
try:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", front)).close()
            break
        except OSError:
            time.sleep(0.02)
    def post(path):
        c, begun = http.client.HTTPConnection("127.0.0.1", front, timeout=30), time.monotonic()
        c.request("POST", path, "x")
        return c.getresponse().status, time.monotonic() - begun
    got = {path: post("/" + path) for path in ("tcp", "unix", "alone")}
finally:
    nginx.kill()
for path, (status, took) in got.items():
    print("%-6s status %d after %.2f s" % (path, status, took))
ok = got["tcp"][0] == 200 and got["tcp"][1] > wait - 0.5 and got["unix"][0] == 200 and got["unix"][1] < 1 and got["alone"][0] == 502 and got["alone"][1] < 1
sys.exit(not ok)
P
python3 probe.py "$d"
