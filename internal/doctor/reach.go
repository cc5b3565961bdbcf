package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// mistakes are the texts of crypto/tls, crypto/x509 and gRPC by which a connection fails because one side expects another
// kind of TLS, each with what it means.
var mistakes = []struct{ text, advice string }{
	{"first record does not look like a TLS handshake", "The server speaks no TLS: use http:// in place of https://, and no --cacert, --cert or --key."},
	{"certificate signed by unknown authority", "The server's certificate is of another authority than those that are trusted: --cacert is the file of etcd's."},
	{"certificate required", "The server wants a certificate of the client: --cert and --key."},
	{"bad certificate", "The server refuses the client's certificate, or wants one: --cert and --key are of the authority that etcd trusts for clients (--trusted-ca-file)."},
	{"certificate has expired or is not yet valid", "The certificate has expired, or a clock is wrong: renew it, on the side that the text names."},
	{"certificate is valid for", "The address is not in the server's certificate: use one that is, or issue it with this one."},
	{"doesn't contain any IP SANs", "The address is not in the server's certificate: use a name that is, or issue it with this address."},
	{"certificate is not valid for any names", "The address is not in the server's certificate: use one that is, or issue it with this one."},
	{"error reading server preface", "The server does not answer without TLS: use https:// (or --cacert, --cert, --key). Or it is no etcd."}, // of any reason, so the last
}

// Mistake returns what the error of a connection means if its cause is how one side uses TLS, or "".
func Mistake(err error) string {
	if err == nil {
		return ""
	}
	for _, m := range mistakes {
		if strings.Contains(err.Error(), m.text) {
			return m.advice
		}
	}
	return ""
}

// expires returns when the certificate of a server ends, or zero without TLS.
func expires(p *peer.Peer) time.Time {
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return time.Time{}
	}
	return info.State.PeerCertificates[0].NotAfter
}

// soonExpired is how long before its end a certificate is a warning.
const soonExpired = 30 * 24 * time.Hour

// certificate warns of a server's certificate that ends soon.
func certificate(endpoint string, ends, now time.Time) []Finding {
	if ends.IsZero() || ends.Sub(now) > soonExpired {
		return nil
	}
	return One(Warn, "After that no client reaches it: renew it. etcd reads a changed file without a restart.", "%s: the server's certificate ends at %s, in %d days", endpoint, ends.UTC().Format(time.RFC3339), int(ends.Sub(now).Hours()/24))
}

// streams is how many streams of a connection doctor opens: more than a session's watches and renewals, and as many again
// for the watches of its program.
const streams = 20

// Streams opens streams at each endpoint, on a connection of their own, and warns where something limits them to fewer. Of an
// endpoint that does not answer it says nothing: the check of endpoints does.
func Streams(ctx context.Context, client *clientv3.Client) (found []Finding) {
	asked := false
	for _, endpoint := range client.Endpoints() {
		n := opened(ctx, client, endpoint)
		if asked = asked || n > 0; n > 0 && n < streams {
			found = append(found, One(Warn, "A client with more watches of its own (each with metadata of its own is a stream) then waits with every call, renewals too, without an error. Raise the limit of what is in front of etcd, or etcd's --max-concurrent-streams.",
				"%s: a connection has at most %d streams", endpoint, n)...)
		}
	}
	if found == nil && asked {
		return One(OK, "", "a connection may have %d streams", streams)
	}
	return found
}

// opened returns how many streams could be opened; 0 if none.
func opened(ctx context.Context, client *clientv3.Client, endpoint string) (n int) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := client.Dial(endpoint)
	if err != nil {
		return 0
	}
	defer conn.Close()
	if _, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{}); err != nil {
		return 0 // the check of endpoints says so; and now the server's settings are known
	}
	watch := pb.NewWatchClient(conn)
	waits := time.AfterFunc(streamWait, cancel)
	defer waits.Stop()
	for ; n < streams; n++ {
		if _, err := watch.Watch(metadata.AppendToOutgoingContext(ctx, "etcdkit-stream", fmt.Sprint("doctor-", n))); err != nil {
			return n
		}
	}
	return n
}

// streamWait is how long all streams may take: one above a limit waits.
const streamWait = 500 * time.Millisecond
