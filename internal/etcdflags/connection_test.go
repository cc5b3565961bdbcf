package etcdflags

import (
	"errors"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
)

// A password is part of the user, a flag of its own, or asked for; without a user there is none.
func TestUser(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		c              Connection
		user, password string
		failed         string
	}{
		"none":           {},
		"in one":         {c: Connection{User: "ann:a:b"}, user: "ann", password: "a:b"},
		"in two":         {c: Connection{User: "ann:x", Password: "secret"}, user: "ann:x", password: "secret"},
		"empty in one":   {c: Connection{User: "ann:"}, user: "ann"},
		"asked for":      {c: Connection{User: "ann"}, user: "ann", password: "asked ann"},
		"without a user": {c: Connection{Password: "secret"}, failed: "--password is given without --user"},
		"not a user":     {c: Connection{User: ":secret"}, failed: "--password is given without --user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := tt.c.Config(func(user string) (string, error) { return "asked " + user, nil })
			if tt.failed != "" {
				require.ErrorContains(t, err, tt.failed)
				return
			}
			require.NoError(t, err)
			require.Equal(t, [2]string{tt.user, tt.password}, [2]string{config.Username, config.Password})
		})
	}
	closed := errors.New("closed")
	_, err := (&Connection{User: "ann"}).Config(func(string) (string, error) { return "", closed })
	require.ErrorIs(t, err, closed)
	_, err = (&Connection{User: "ann"}).Config(NoTerminal)
	require.ErrorContains(t, err, "ETCDCTL_PASSWORD")
}

// There is TLS if a file or a flag asks for it. A file that cannot be read is an error that names the flags.
func TestTLS(t *testing.T) {
	t.Parallel()
	parsed := func(args ...string) *Connection {
		var c Connection
		f := flag.NewFlagSet("", flag.ContinueOnError)
		c.Define(f)
		require.NoError(t, f.Parse(args))
		return &c
	}
	config, err := parsed().Config(NoTerminal)
	require.NoError(t, err)
	require.Nil(t, config.TLS)
	config, err = parsed("-insecure-transport=false").Config(NoTerminal)
	require.NoError(t, err)
	require.NotNil(t, config.TLS)
	require.False(t, config.TLS.InsecureSkipVerify)
	config, err = parsed("-insecure-transport=false", "-insecure-skip-tls-verify").Config(NoTerminal)
	require.NoError(t, err)
	require.True(t, config.TLS.InsecureSkipVerify)
	for _, args := range [][]string{{"-cacert", "no such file"}, {"-cert", "no such file", "-key", "no such file"}} {
		_, err = parsed(args...).Config(NoTerminal)
		require.ErrorContains(t, err, "--cert, --key, --cacert: open no such file", args)
	}
}

// A flag of etcdctl has etcdctl's variable, which counts if it is not empty.
func TestVariables(t *testing.T) {
	require.Equal(t, "ETCDCTL_INSECURE_SKIP_TLS_VERIFY", Variable("insecure-skip-tls-verify"))
	require.Empty(t, Variable("limit"))
	var got []string
	set := func(flag, value string) error {
		got = append(got, flag+"="+value)
		return nil
	}
	t.Setenv("ETCDCTL_USER", "ann")
	t.Setenv("ETCDCTL_CACERT", "")
	for _, name := range []string{"user", "cacert", "limit"} {
		require.NoError(t, FromVariable(Variable(name), name, set))
	}
	require.Equal(t, []string{"user=ann"}, got)
	err := FromVariable("ETCDCTL_USER", "user", func(string, string) error { return errors.New("wrong") })
	require.EqualError(t, err, `environment variable ETCDCTL_USER="ann": wrong`)
}

// A flag that is given and empty is refused, and endpoints that would be looked for in DNS.
func TestCheck(t *testing.T) {
	given := func(flags map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { value, ok := flags[name]; return value, ok }
	}
	require.NoError(t, Check(given(nil)))
	require.NoError(t, Check(given(map[string]string{"cacert": "ca.pem", "password": ""})))
	require.ErrorContains(t, Check(given(map[string]string{"cacert": ""})), "--cacert is empty")
	t.Setenv("ETCDCTL_DISCOVERY_SRV", "example.com")
	require.ErrorContains(t, Check(given(nil)), "ETCDCTL_DISCOVERY_SRV")
	require.NoError(t, Check(given(map[string]string{"endpoints": "a:2379"})))
}
