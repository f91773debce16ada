package test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxColumns is the width of a line of prose in a document.
const maxColumns = 100

// TestVoiceOfDocuments holds documents, manual pages, interface files, examples and
// units to sentences that name their subject: none opens with "Who" or "What", except a question.
func TestVoiceOfDocuments(t *testing.T) {
	seen := map[string]bool{}
	for _, path := range sourceFiles(t) {
		paragraphs := paragraphsOf(path)
		if paragraphs == nil {
			continue
		}
		seen[filepath.Ext(path)] = true
		for _, paragraph := range paragraphs(read(t, path)) {
			for _, sentence := range freeSubjects(paragraph) {
				t.Errorf("%s: a sentence has no named subject: %q", path, sentence)
			}
		}
	}
	for _, kind := range []string{".md", ".1", ".8", ".varlink", ".yaml", ".service", ".socket", ".timer", ".conf"} {
		if !seen[kind] {
			t.Errorf("no file ends in %s", kind)
		}
	}
}

// TestVoiceOfMessages holds errors, hints and help to the same: every string of the
// product's code that is a sentence.
func TestVoiceOfMessages(t *testing.T) {
	seen := 0
	parseAll(t, func(fset *token.FileSet, path string, file *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "test/") {
			return
		}
		for _, m := range messages(file) {
			seen++
			for _, paragraph := range textParagraphs(m.text) {
				for _, sentence := range freeSubjects(paragraph) {
					t.Errorf("%s: a sentence has no named subject: %q", fset.Position(m.pos), sentence)
				}
			}
		}
	})
	if seen < 1000 {
		t.Fatalf("%d strings found", seen)
	}
}

// A message is a string of the source.
type message struct {
	pos  token.Pos
	text string
}

// messages returns the strings of a file. A sum of strings is one message, in which
// "…" stands for its variables. Import paths and struct tags are left out.
func messages(file *ast.File) []message {
	var found []message
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BinaryExpr, *ast.BasicLit:
			text, others := sum(n.(ast.Expr))
			if strings.Trim(text, "…") == "" {
				return true
			}
			found = append(found, message{n.Pos(), text})
			for _, other := range others {
				ast.Inspect(other, visit)
			}
			return false
		}
		return true
	}
	ast.Inspect(file, visit)
	return found
}

// sum returns the text of a sum of strings, and the terms that are not literals.
func sum(e ast.Expr) (text string, others []ast.Expr) {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			left, inLeft := sum(e.X)
			right, inRight := sum(e.Y)
			return left + right, append(inLeft, inRight...)
		}
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text, nil
		}
	}
	return "…", []ast.Expr{e}
}

// paragraphsOf returns the function that finds the paragraphs of such a file, and nil
// where the voice is not checked.
func paragraphsOf(path string) func(text string) []string {
	inExamples := strings.HasPrefix(path, "packaging/") || strings.HasPrefix(path, "systemd/") && !strings.Contains(path, "testdata")
	switch ext := filepath.Ext(path); {
	case ext == ".md":
		return markdownParagraphs
	case path == "packaging/man/holdfast.1": // made from the help texts
	case filepath.Dir(path) == "packaging/man":
		return manParagraphs
	case ext == ".varlink":
		return commentParagraphs
	case inExamples && slices.Contains([]string{".yaml", ".conf", ".kubeconfig", ".service", ".socket", ".timer"}, ext):
		return commentParagraphs
	}
	return nil
}

// TestDocumentsAreWrapped holds the prose of documents to a line length. Code, tables
// and lines that are one link may be longer.
func TestDocumentsAreWrapped(t *testing.T) {
	checked := 0
	for _, path := range sourceFiles(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		checked++
		for _, line := range longLines(read(t, path)) {
			t.Errorf("%s:%s", path, line)
		}
	}
	if checked == 0 {
		t.Fatal("no document found")
	}
}

// longLines returns the number and width of each line of prose that is too long.
func longLines(text string) []string {
	var long []string
	link := regexp.MustCompile(`^\s*(?:[-*] )?<?(?:\[[^\]]*\]\([^)]*\)|https?://\S+)[.,;:>]*$`)
	for i, line := range markdownProse(text) {
		if n := utf8.RuneCountInString(line); n > maxColumns && !link.MatchString(line) {
			long = append(long, fmt.Sprintf("%d: %d columns, want at most %d", i+1, n, maxColumns))
		}
	}
	return long
}

// markdownProse returns the lines of a document; those of code and tables are empty.
func markdownProse(text string) []string {
	lines := strings.Split(text, "\n")
	fenced := false
	for i, line := range lines {
		fence := strings.HasPrefix(line, "```")
		if fenced || fence || strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "|") {
			lines[i] = ""
		}
		fenced = fenced != fence
	}
	return lines
}

// markdownParagraphs returns the paragraphs, headings and list items of a document,
// without code and tables.
func markdownParagraphs(text string) []string {
	item := regexp.MustCompile(`^\s*(?:[-*]|\d+\.|#+)\s+`)
	var p paragraphs
	for _, line := range markdownProse(text) {
		if line == "" || item.MatchString(line) {
			p.end()
		}
		p.add(item.ReplaceAllString(line, ""))
		if strings.HasPrefix(line, "#") {
			p.end()
		}
	}
	return p.all()
}

// manParagraphs returns the paragraphs and tags of a manual page, without fonts and
// examples.
func manParagraphs(text string) []string {
	font := regexp.MustCompile(`\\f[BIRP]|\\&`)
	var p paragraphs
	example, tag := false, false
	for line := range strings.Lines(text) {
		request, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case request == ".EX" || request == ".nf":
			example = true
		case request == ".EE" || request == ".fi":
			example = false
			p.end()
		case example || strings.HasPrefix(request, `.\"`):
		case slices.Contains([]string{".B", ".I", ".BR", ".IR"}, request):
			p.add(strings.ReplaceAll(rest, `"`, ""))
		case strings.HasPrefix(request, "."):
			p.end()
			tag = request == ".TP"
			continue
		default:
			p.add(font.ReplaceAllString(strings.ReplaceAll(line, `\-`, "-"), ""))
		}
		if tag {
			p.end()
		}
		tag = false
	}
	return p.all()
}

// commentParagraphs returns the comments of a file whose comments begin with "#".
func commentParagraphs(text string) []string {
	var p paragraphs
	for line := range strings.Lines(text) {
		comment, found := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !found || strings.TrimSpace(comment) == "" {
			p.end()
		}
		if found {
			p.add(comment)
		}
	}
	return p.all()
}

// textParagraphs returns the paragraphs of plain text, such as a help text.
func textParagraphs(text string) []string {
	var p paragraphs
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			p.end()
		}
		p.add(line)
	}
	return p.all()
}

// paragraphs collects lines.
type paragraphs struct {
	done []string
	open []string
}

func (p *paragraphs) add(line string) {
	if line = strings.TrimSpace(line); line != "" {
		p.open = append(p.open, line)
	}
}

func (p *paragraphs) end() {
	if p.open != nil {
		p.done, p.open = append(p.done, strings.Join(p.open, " ")), nil
	}
}

func (p *paragraphs) all() []string {
	p.end()
	return p.done
}

var (
	sentenceEnd = regexp.MustCompile(`[.!?][)"'*]*\s+`)
	freeSubject = regexp.MustCompile(`^["'(*]*(?i:who|what|whoever|whatever)\s`)
)

// freeSubjects returns the sentences of a paragraph that open with a pronoun which
// has no antecedent. Questions may.
func freeSubjects(paragraph string) []string {
	var free []string
	for start := 0; start < len(paragraph); {
		end := len(paragraph)
		if at := sentenceEnd.FindStringIndex(paragraph[start:]); at != nil {
			end = start + at[1]
		}
		sentence := strings.TrimSpace(paragraph[start:end])
		if freeSubject.MatchString(sentence) && !strings.HasSuffix(strings.TrimRight(sentence, `)"'*`), "?") {
			free = append(free, sentence)
		}
		start = end
	}
	return free
}

// TestVoiceChecksCanFail shows the checks of this file what they must find.
func TestVoiceChecksCanFail(t *testing.T) {
	for text, want := range map[string][]string{
		"Who is not named gets nothing.":                      {"Who is not named gets nothing."},
		"A fact. What fails is one line. And more.":           {"What fails is one line."},
		"what the card says is lost":                          {"what the card says is lost"},
		"(Whoever asks waits.) Then **What is there stays.**": {"(Whoever asks waits.)"},
		"**Who is not named** gets nothing":                   {"**Who is not named** gets nothing"},
		"Who is calling? The kernel knows who and what.":      nil,
		"It names whoever asks, e.g. root. The whole what.":   nil,
		"what":      nil,
		"Whose key": nil,
	} {
		if got := freeSubjects(text); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}

	wide := strings.Repeat("ä", maxColumns)
	document := "# What\n" + wide + "\n" + wide + "b\n- one\n  item\n- [a](" + wide + ")\n```\n" + wide + "b\n```\n| " + wide + " |\n    " + wide + "\nlast\n"
	if got, want := longLines(document), []string{"3: 101 columns, want at most 100"}; !slices.Equal(got, want) {
		t.Errorf("long lines: %q, want %q", got, want)
	}
	for name, c := range map[string]struct {
		read func(string) []string
		text string
		want []string
	}{
		"markdown": {markdownParagraphs, "# A\nb\n- c\n  d\n2. e\n\n| f |\n```\ng\n```\nh\n", []string{"A", "b", "c d", "e", "h"}},
		"man":      {manParagraphs, ".\\\" a\n.SH B\nc\n.BR d (8)\n\\fBe\\-f\\fR\n.TP\n.B g\nh\n.EX\ni\n.EE\nj\n", []string{"c d (8) e-f", "g", "h", "j"}},
		"comments": {commentParagraphs, "# a\n# b\n#\n# c\nd: e\n  # f\n", []string{"a b", "c", "f"}},
		"text":     {textParagraphs, "a\nb\n\nc", []string{"a b", "c"}},
	} {
		if got := c.read(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestMessagesAreFound shows messages what it must find.
func TestMessagesAreFound(t *testing.T) {
	source := `package p

import "who is imported"

type t struct {
	f int "who is tagged"
}

const a = "first"

func f(x string) error {
	g(1+2, "Who " + "asks " + x + "?", ` + "`raw`" + `)
	return h("%s: " + g("in it"))
}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range messages(file) {
		got = append(got, m.text)
	}
	if want := []string{"first", "Who asks …?", "raw", "%s: …", "in it"}; !slices.Equal(got, want) {
		t.Errorf("messages: %q, want %q", got, want)
	}
}
