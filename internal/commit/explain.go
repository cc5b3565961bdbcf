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

// Explain adds to an error for which Denied holds what an operator has to change, once. All
// keys of the caller begin with prefix; user is that of its client, empty for none. Other errors are returned
// as they are.
func Explain(err error, prefix, user string) error {
	if _, done := errors.AsType[*deniedError](err); done || err == nil || !Denied(err) {
		return err
	}
	known, _ := asEtcd(err)
	switch {
	case known.Code() == codes.PermissionDenied:
		return &deniedError{err, known, fmt.Sprintf("the role of the client's user needs read and write permission for all keys with the prefix %s: etcdctl role grant-permission ROLE readwrite --prefix %s", prefix, prefix)}
	case user == "":
		return &deniedError{err, known, "set Username and Password in the clientv3.Config of this client"}
	case known == rpctypes.ErrAuthFailed:
		return &deniedError{err, known, fmt.Sprintf("etcd refuses the login of user %q: its password was changed, or the user was deleted; Username and Password in the clientv3.Config of this client must be those that etcd has", user)}
	}
	return err // clientv3 logs in again
}
