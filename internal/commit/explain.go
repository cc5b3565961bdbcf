package commit

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
)

// deniedError adds what an operator has to change so that etcd allows a request.
type deniedError struct {
	error
	known  error // by which Denied knows it
	remedy string
}

func (e *deniedError) Error() string { return e.error.Error() + ": " + e.remedy }

func (e *deniedError) Unwrap() []error { return []error{e.error, e.known} }

// Asker is the client whose request etcd has refused.
type Asker struct {
	Prefix  string // of all of its keys
	Wrapped bool   // its KV is wrapped, as by etcd's package namespace, which puts another prefix before Prefix
	User    string // empty for none
}

// Explain adds to an error for which Denied holds what an operator has to change, once. Other errors are returned
// as they are.
func Explain(err error, by Asker) error {
	if _, done := errors.AsType[*deniedError](err); done || err == nil || !Denied(err) {
		return err
	}
	known, _ := asEtcd(err)
	switch {
	case known.Code() == codes.PermissionDenied:
		return &deniedError{err, known, by.needs()}
	case by.User == "":
		return &deniedError{err, known, "set Username and Password in the clientv3.Config of this client"}
	case known == rpctypes.ErrAuthFailed:
		return &deniedError{err, known, fmt.Sprintf("etcd refuses the login of user %q: its password was changed, or the user was deleted; Username and Password in the clientv3.Config of this client must be those that etcd has", by.User)}
	}
	return err // clientv3 logs in again
}

// needs says what the role of the client's user needs.
func (a Asker) needs() string {
	const grant = "the role of the client's user needs read and write permission for all keys with the prefix %s: etcdctl role grant-permission ROLE readwrite --prefix %s"
	if !a.Wrapped {
		return fmt.Sprintf(grant, a.Prefix, a.Prefix)
	}
	return fmt.Sprintf(grant, a.Prefix+", behind the prefix of the client's namespace wrapper", "WRAPPER"+a.Prefix)
}
