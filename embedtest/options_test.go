package embedtest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// A762: HeartbeatInterval, ElectionTimeout and Fsync were ignored on the cluster of EMBEDTEST_ENDPOINTS.
func TestOptionsThatNeedAnOwnServer(t *testing.T) {
	t.Parallel()
	require.False(t, (*Options)(nil).needsOwnServer(1))
	require.False(t, (&Options{}).needsOwnServer(1))
	require.False(t, (&Options{Members: 3}).needsOwnServer(3))
	require.True(t, (&Options{Members: 3}).needsOwnServer(2))
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Options]()) {
		var o Options
		set(t, reflect.ValueOf(&o).Elem().FieldByIndex(field.Index))
		anywhere := field.Name == "Members" || field.Name == "Logger"
		require.Equal(t, !anywhere, o.needsOwnServer(1), field.Name)
	}
}

// set gives a field a value other than its zero value.
func set(t *testing.T, field reflect.Value) {
	t.Helper()
	switch field.Kind() {
	case reflect.Bool:
		field.SetBool(true)
	case reflect.Int, reflect.Int64:
		field.SetInt(1)
	case reflect.String:
		field.SetString("x")
	case reflect.Pointer:
		field.Set(reflect.New(field.Type().Elem()))
	case reflect.Func:
		field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value { return nil }))
	default:
		t.Fatalf("a field of kind %v: how is it set?", field.Kind())
	}
}
