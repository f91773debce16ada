package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A program outside this module cannot import internal packages. Every internal
// type in the exported declarations of package client therefore needs an alias, and
// so does every type in the members of those types.
func TestAPINamesNoInternalType(t *testing.T) {
	aliases := map[string]bool{} // agentwire.Key
	for _, file := range parseDir(t, ".") {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Assign.IsValid() {
				aliases[selector(spec.Type)] = true
			}
			return true
		})
	}
	if len(aliases) == 0 {
		t.Fatal("package client has no aliases")
	}
	for _, file := range parseDir(t, ".") {
		for _, decl := range file.Decls {
			for _, name := range internalTypes(decl) {
				t.Errorf("%s is in the API of package client", name)
			}
		}
	}
	for _, room := range []string{"agentwire", "fault", "metrics", "dial"} {
		for _, file := range parseDir(t, filepath.Join("../internal", room)) {
			for _, name := range unnamedMembers(file, room, aliases) {
				t.Errorf("package client has no name for %s, a member of a type in its API", name)
			}
		}
	}
}

func TestAPICheckCanFail(t *testing.T) {
	const source = `package p
func Exported(agentwire.Key) *fault.Error { return nil }
func (c *Client) Method() []agentwire.Card { return nil }
func hidden(agentwire.Key) {}
func (h *handle) Method() agentwire.Key { return nil }
type Struct struct { Member agentwire.Place; own agentwire.Key }
type Alias = agentwire.Owner
type Key struct { Servers []Server; Place *Place; Text string }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, decl := range file.Decls {
		got = append(got, internalTypes(decl)...)
	}
	if want := "agentwire.Key fault.Error agentwire.Card agentwire.Place"; strings.Join(got, " ") != want {
		t.Errorf("internal types: got %q, want %q", got, want)
	}
	got = unnamedMembers(file, "agentwire", map[string]bool{"agentwire.Key": true, "agentwire.Place": true})
	if want := "agentwire.Server"; strings.Join(got, " ") != want {
		t.Errorf("members without a name: got %q, want %q", got, want)
	}
}

func parseDir(t *testing.T, dir string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatalf("no Go files in %s", dir)
	}
	return files
}

// internalTypes lists the types of internal packages in an exported declaration
// that is no alias.
func internalTypes(decl ast.Decl) (found []string) {
	var types []ast.Expr
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Name.IsExported() && (decl.Recv == nil || exportedReceiver(decl)) {
			types = append(types, decl.Type)
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			if spec, ok := spec.(*ast.TypeSpec); ok && spec.Name.IsExported() && !spec.Assign.IsValid() {
				types = append(types, exportedMembers(spec.Type)...)
			}
		}
	}
	for _, expr := range types {
		ast.Inspect(expr, func(n ast.Node) bool {
			expr, ok := n.(ast.Expr)
			name := ""
			if ok {
				name = selector(expr)
			}
			switch room, _, _ := strings.Cut(name, "."); room {
			case "agentwire", "fault", "metrics", "dial", "keys", "varlink", "message":
				found = append(found, name)
			}
			return true
		})
	}
	return found
}

func exportedReceiver(decl *ast.FuncDecl) bool {
	receiver := decl.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	name, ok := receiver.(*ast.Ident)
	return ok && name.IsExported()
}

// exportedMembers returns the types of a struct's exported members, or the type
// itself when it is no struct.
func exportedMembers(expr ast.Expr) (types []ast.Expr) {
	s, ok := expr.(*ast.StructType)
	if !ok {
		return []ast.Expr{expr}
	}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || field.Names[0].IsExported() {
			types = append(types, field.Type)
		}
	}
	return types
}

// unnamedMembers lists the types of the same package that occur in the members of
// aliased types and have no alias themselves.
func unnamedMembers(file *ast.File, room string, aliases map[string]bool) (found []string) {
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range general.Specs {
			spec, ok := spec.(*ast.TypeSpec)
			if !ok || !aliases[room+"."+spec.Name.Name] {
				continue
			}
			for _, member := range exportedMembers(spec.Type) {
				ast.Inspect(member, func(n ast.Node) bool {
					if _, foreign := n.(*ast.SelectorExpr); foreign {
						return false
					}
					if id, ok := n.(*ast.Ident); ok && id.IsExported() && !aliases[room+"."+id.Name] {
						found = append(found, room+"."+id.Name)
					}
					return true
				})
			}
		}
	}
	return found
}

// selector returns package.Name for a type of another package, else nothing.
func selector(expr ast.Expr) string {
	s, ok := expr.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	room, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return room.Name + "." + s.Sel.Name
}
