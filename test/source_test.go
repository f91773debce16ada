package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxLines is the longest function, in lines with its signature.
const maxLines = 80

// TestDocComments holds every package and exported name to a comment.
func TestDocComments(t *testing.T) {
	documented := map[string]bool{}
	parseAll(t, func(fset *token.FileSet, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		dir := filepath.Dir(path)
		documented[dir] = documented[dir] || file.Doc.Text() != ""
		for _, missing := range undocumented(file) {
			t.Errorf("%s: %s has no doc comment", fset.Position(missing.Pos()), missing.Name)
		}
	})
	for dir, ok := range documented {
		if !ok {
			t.Errorf("%s: no package comment", dir)
		}
	}
}

func TestDocCommentsCheckCanFail(t *testing.T) {
	const source = `package p

// Said has a comment.
func Said() {}

func Silent() {}

type Bare struct{}

func (Bare) Method() {}

func (hidden) Method() {}

// These have one together.
const (
	A = 1
	B = 2
)

var (
	C = 3
	D = 4 // D has its own.
)
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range undocumented(file) {
		got = append(got, name.Name)
	}
	if want := []string{"Silent", "Bare", "Method", "C"}; !slices.Equal(got, want) {
		t.Errorf("names without a comment: %v, want %v", got, want)
	}
}

// undocumented returns the exported names of file that no comment is about.
func undocumented(file *ast.File) []*ast.Ident {
	var missing []*ast.Ident
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Doc.Text() == "" && decl.Name.IsExported() && reachable(decl) {
				missing = append(missing, decl.Name)
			}
		case *ast.GenDecl:
			if decl.Doc.Text() == "" {
				missing = append(missing, undocumentedSpecs(decl.Specs)...)
			}
		}
	}
	return missing
}

func undocumentedSpecs(specs []ast.Spec) []*ast.Ident {
	var missing []*ast.Ident
	for _, spec := range specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if spec.Doc.Text() == "" && spec.Name.IsExported() {
				missing = append(missing, spec.Name)
			}
		case *ast.ValueSpec:
			if spec.Doc.Text() == "" && spec.Comment.Text() == "" && spec.Names[0].IsExported() {
				missing = append(missing, spec.Names[0])
			}
		}
	}
	return missing
}

// reachable reports whether f is a function or a method of an exported type.
func reachable(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	receiver := f.Recv.List[0].Type
	for {
		switch t := receiver.(type) {
		case *ast.StarExpr:
			receiver = t.X
		case *ast.IndexExpr:
			receiver = t.X
		case *ast.IndexListExpr:
			receiver = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return false
		}
	}
}

// TestFunctionLength keeps functions short enough to be read at once. Tests are
// free: theirs are long where a table is.
func TestFunctionLength(t *testing.T) {
	seen := 0
	parseAll(t, func(fset *token.FileSet, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			seen++
			if n := fset.Position(f.End()).Line - fset.Position(f.Pos()).Line + 1; n > maxLines {
				t.Errorf("%s: %s has %d lines, want at most %d", fset.Position(f.Pos()), f.Name, n, maxLines)
			}
		}
	})
	if seen == 0 {
		t.Fatal("no function found")
	}
}

// parseAll calls visit for each Go file of the module.
func parseAll(t *testing.T, visit func(fset *token.FileSet, path string, file *ast.File)) {
	t.Helper()
	fset := token.NewFileSet()
	for _, path := range sourceFiles(t) {
		if filepath.Ext(path) != ".go" {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(root(t), path), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		visit(fset, path, file)
	}
}
