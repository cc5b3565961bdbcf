package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unclear are words that leave open which process or caller is meant, or that have a plain
// term.
var unclear = regexp.MustCompile(`(?i)\b(somebody|someone|nobody|whoever|tells?|told|telling|heeds?|heeded|meddled|he|him|his)\b`)

// What the product returns as an error, logs or answers is read by those who did not write it.
// No text of its packages has an unclear word.
func TestTextsArePlain(t *testing.T) {
	for text, want := range map[string]bool{
		"paused by ops": false, "the request was told": true, "intelligible, here, the": false, "Nobody waits": true, "does not heed it": true,
	} {
		if unclear.MatchString(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
	read := 0
	for _, dir := range []string{"concurrency", "schedlock", "idempotency", "internal"} {
		err := filepath.WalkDir(filepath.Join("..", "..", "..", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && (d.Name() == "proof" || d.Name() == "ports") && strings.HasSuffix(filepath.Dir(path), "internal") {
				return fs.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			read++
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && unclear.MatchString(lit.Value) {
					t.Errorf("%s: %s", fset.Position(lit.Pos()), lit.Value)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 100 {
		t.Errorf("only %d files were read", read)
	}
}
