package keyspace

// tokens is the range of the stored tokens of all slow rates below the root of a space.
const tokens = "bucket/"

// Tokens is the part of etcd that belongs to the stored tokens of one slow rate. It is outside the range of the
// rate's shares, which mirrors follow.
type Tokens struct {
	Range string
	// Left is the record. Timer exists as long as the lease by which the time since the record is measured.
	Left, Timer string
}

// ofTokens reports whether a key is one of the stored tokens of a rate.
func ofTokens(s Space, key string) bool {
	name, _, ok := split(key, s.root+tokens)
	if !ok || CheckName(name) != nil {
		return false
	}
	t := s.Tokens(name)
	return key == t.Left || key == t.Timer
}
