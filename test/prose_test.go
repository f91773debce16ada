package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// mayRead are the files that take an error's text apart, with the reason.
var mayRead = map[string]string{
	"client/kubeconfig/load.go": "the YAML library's errors have their line, and the value that must not be shown, in their text alone",
}

// TestNoCodeReadsProse keeps the texts of errors and hints for people. Code that
// decides by such a text breaks when the text is improved: it compares kinds, typed
// next steps (fault.Next) or error values instead.
func TestNoCodeReadsProse(t *testing.T) {
	looked, excepted := 0, map[string]bool{}
	parseAll(t, func(fset *token.FileSet, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		looked++
		for _, n := range readsProse(file) {
			if _, ok := mayRead[path]; ok {
				excepted[path] = true
				continue
			}
			t.Errorf("%s: a decision by the text of an error or a hint", fset.Position(n.Pos()))
		}
	})
	if looked == 0 {
		t.Fatal("no file found")
	}
	for path := range mayRead {
		if !excepted[path] {
			t.Errorf("%s reads no error's text any more: remove it from mayRead", path)
		}
	}
}

func TestProseCheckCanFail(t *testing.T) {
	const source = `package p
func f(err error, e *Error) {
	_ = strings.Contains(err.Error(), "x") // 3
	_ = strings.ReplaceAll(e.Hint, "NAME", "x") // 4
	switch err.Error() { // 5
	}
	_ = err.Error() == "x" // 7
	_ = e.hint != "x" // 8
	_, _ = strings.CutPrefix(strings.ToLower(e.Advice()), "x") // 9
	_ = e.Hint == "" || e.Hint == other.Hint || e.Hint == e.Next.String()
	_ = strings.ReplaceAll(err.Error(), "\n", "; ")
	_ = fmt.Sprint(err.Error())
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, n := range readsProse(file) {
		got = append(got, fset.Position(n.Pos()).Line)
	}
	if want := "[3 4 5 7 8 9]"; fmt.Sprint(got) != want {
		t.Errorf("lines found: %v, want %s", got, want)
	}
}

// readsProse returns the expressions of file that search, compare or cut the text of
// an error or a hint. Three uses do not read it: a comparison with "" asks whether
// there is a text, one with another such text whether it is shown twice, and the
// replacement of line ends is layout.
func readsProse(file *ast.File) (found []ast.Node) {
	ast.Inspect(file, func(n ast.Node) bool {
		reads := false
		switch n := n.(type) {
		case *ast.CallExpr:
			reads = callsStrings(n) && prose(n.Args[0]) && !(len(n.Args) == 3 && literal(n.Args[1]) == `"\n"`)
		case *ast.SwitchStmt:
			reads = n.Tag != nil && prose(n.Tag)
		case *ast.BinaryExpr:
			compares := n.Op == token.EQL || n.Op == token.NEQ
			reads = compares && (prose(n.X) && !sameText(n.Y) || prose(n.Y) && !sameText(n.X))
		}
		if reads {
			found = append(found, n)
		}
		return true
	})
	return found
}

// callsStrings reports whether call is to a function of package strings that looks
// into its first argument.
func callsStrings(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	room, ok := f.X.(*ast.Ident)
	if !ok || room.Name != "strings" {
		return false
	}
	for _, prefix := range []string{"Contains", "Has", "Cut", "Trim", "Replace", "Index", "LastIndex", "Split", "Fields", "Equal"} {
		if strings.HasPrefix(f.Sel.Name, prefix) {
			return true
		}
	}
	return false
}

// prose reports whether expr holds the text of an error or a hint.
func prose(expr ast.Expr) bool {
	is := false
	ast.Inspect(expr, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok {
				is = is || f.Sel.Name == "Error" && len(n.Args) == 0 || f.Sel.Name == "Advice"
			}
		case *ast.SelectorExpr:
			is = is || n.Sel.Name == "Hint" || n.Sel.Name == "hint"
		}
		return true
	})
	return is
}

// sameText reports whether expr is the empty text, or a text for people itself.
func sameText(expr ast.Expr) bool {
	if call, ok := expr.(*ast.CallExpr); ok {
		f, ok := call.Fun.(*ast.SelectorExpr)
		return ok && f.Sel.Name == "String"
	}
	return literal(expr) == `""` || prose(expr)
}

func literal(expr ast.Expr) string {
	if l, ok := expr.(*ast.BasicLit); ok {
		return l.Value
	}
	return ""
}

// TestHintsDoNoHarm keeps commands out of the product's texts that damage a machine or
// lose a key when root follows them with the path or the name that the text fills in.
func TestHintsDoNoHarm(t *testing.T) {
	looked := 0
	parseAll(t, func(fset *token.FileSet, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			looked++
			for _, harm := range harmful {
				if harm.MatchString(text.Value) {
					t.Errorf("%s: %s", fset.Position(n.Pos()), text.Value)
				}
			}
			return true
		})
	})
	if looked == 0 {
		t.Fatal("no text found")
	}
}

// harmful are the commands that no hint gives: other rights for a path, such as /tmp,
// that a caller named; a membership of a group that was not looked at; the deletion of
// a key that is in use, or of whatever is in a slot.
var harmful = []*regexp.Regexp{
	regexp.MustCompile(`\b(chmod|chown|chgrp|adduser|usermod|gpasswd) `),
	regexp.MustCompile(`\brm -|\bmkfs|\bdd if=|\bkill -9|\btpm2_clear`),
	regexp.MustCompile("`holdfast key delete \""),
	regexp.MustCompile(`--slot [0-9][0-9a-e] --overwrite`),
}
