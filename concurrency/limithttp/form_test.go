package limithttp

import (
	"bytes"
	"context"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etcdkit/etcdkit/concurrency"
)

// A590: the files of a form that a handler has read are removed with the request, also if the handler has panicked and a
// recoverer in front answers. They stayed for ever.
func TestFilesOfAFormAfterAPanic(t *testing.T) {
	free := func(_ *concurrency.Semaphore, ctx context.Context, fn func(context.Context, *concurrency.Permit) error, _ ...concurrency.AcquireOption) error {
		return fn(ctx, nil)
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, err := form.CreateFormFile("f", "a.csv")
	require.NoError(t, err)
	_, err = file.Write(bytes.Repeat([]byte("x"), 64<<10))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("of a test") }} {
		stored := make(chan int, 1)
		h := stubbed(t, Options{}, free, func(_ http.ResponseWriter, r *http.Request) {
			_ = r.ParseMultipartForm(1)
			files, _ := os.ReadDir(dir)
			stored <- len(files)
			end()
		})
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if recover() != nil {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}()
			h.ServeHTTP(w, r)
		}))
		resp, err := http.Post(server.URL, form.FormDataContentType(), bytes.NewReader(b.Bytes()))
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		server.Close() // waits for the request's end
		require.Equal(t, 1, <-stored, name)
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, files, name)
	}
}
