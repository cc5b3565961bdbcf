// Package etcdflags is how a program reaches etcd and which user it is, in the flags and environment
// variables of etcdctl. The command and the examples parse flags with two libraries, and share what the
// flags mean.
package etcdflags

import (
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Connection is what the flags say. As JSON it can be passed to a child process, with its password.
type Connection struct {
	Endpoints                       []string
	Cert, Key, Cacert               string // names of files
	InsecureTransport               bool
	InsecureSkipVerify              bool
	User, Password                  string
	DialTimeout                     time.Duration
	KeepAliveTime, KeepAliveTimeout time.Duration
}

// FlagSet is a set of flags of the packages flag and pflag.
type FlagSet interface {
	StringVar(p *string, name, value, usage string)
	BoolVar(p *bool, name string, value bool, usage string)
}

// Define defines the flags for TLS and the user, with the names, meanings and defaults of etcdctl.
func (c *Connection) Define(f FlagSet) {
	f.StringVar(&c.Cert, "cert", "", "file of the client's TLS certificate")
	f.StringVar(&c.Key, "key", "", "file of the client's TLS key")
	f.StringVar(&c.Cacert, "cacert", "", "file of the certificates by which etcd's is verified")
	f.BoolVar(&c.InsecureTransport, "insecure-transport", true, "no TLS, if neither a certificate nor https:// asks for it")
	f.BoolVar(&c.InsecureSkipVerify, "insecure-skip-tls-verify", false, "do not verify etcd's certificate (for tests)")
	f.StringVar(&c.User, "user", "", "user name, or name:password; without a password a terminal is asked for it")
	f.StringVar(&c.Password, "password", "", "password of --user")
}

// TrimEndpoints removes the spaces around each endpoint, as etcdctl does: "a:2379, b:2379" is two.
func (c *Connection) TrimEndpoints() {
	for i, at := range c.Endpoints {
		c.Endpoints[i] = strings.TrimSpace(at)
	}
}

// Config returns the configuration of a client that logs nothing. ask is called for the password of a user
// that is given without one. Config returns its errors, and one that names the flags if they contradict each
// other or a file cannot be read.
func (c *Connection) Config(ask func(user string) (password string, err error)) (*clientv3.Config, error) {
	auth, err := c.auth(ask)
	if err != nil {
		return nil, err
	}
	config, err := clientv3.NewClientConfig(&clientv3.ConfigSpec{
		Endpoints: c.Endpoints, DialTimeout: c.DialTimeout, KeepAliveTime: c.KeepAliveTime, KeepAliveTimeout: c.KeepAliveTimeout,
		Secure: &clientv3.SecureConfig{Cert: c.Cert, Key: c.Key, Cacert: c.Cacert, InsecureTransport: c.InsecureTransport, InsecureSkipVerify: c.InsecureSkipVerify},
		Auth:   auth,
	}, zap.NewNop())
	if err != nil {
		return nil, fmt.Errorf("--cert, --key, --cacert: %w", err)
	}
	config.Logger = zap.NewNop() // failures are reported as errors
	return config, nil
}

// auth returns the user and password, or nil without a user.
func (c *Connection) auth(ask func(user string) (string, error)) (*clientv3.AuthConfig, error) {
	name, password, inline := strings.Cut(c.User, ":")
	switch {
	case name == "":
		if c.Password != "" || inline {
			return nil, errors.New("--password is given without --user")
		}
		return nil, nil
	case c.Password != "":
		return &clientv3.AuthConfig{Username: c.User, Password: c.Password}, nil
	case inline:
		return &clientv3.AuthConfig{Username: name, Password: password}, nil
	}
	password, err := ask(name)
	if err != nil {
		return nil, err
	}
	return &clientv3.AuthConfig{Username: name, Password: password}, nil
}

// NoTerminal is an ask for Config where there is no terminal.
func NoTerminal(user string) (password string, err error) {
	return "", fmt.Errorf("--user %s has no password, and there is no terminal to ask; set ETCDCTL_PASSWORD", user)
}
