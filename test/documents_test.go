package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestSecurityNamesItsTests holds each promise of SECURITY.md to a row in the table
// of tests, or to the word "unproven", and each row to a promise and to tests that
// exist.
func TestSecurityNamesItsTests(t *testing.T) {
	text := read(t, "SECURITY.md")
	for _, complaint := range unprovenPromises(text) {
		t.Errorf("SECURITY.md: %s", complaint)
	}
	exist := testNames(t)
	for _, name := range namedTests(text) {
		if !slices.Contains(exist, name) {
			t.Errorf("SECURITY.md: there is no %s", name)
		}
	}
}

// unprovenPromises compares the promises of a text, and what it does not promise,
// with the rows of its table of tests.
func unprovenPromises(text string) []string {
	promises := sections(text, regexp.MustCompile(`(?m)^### (P\d+)\b`))
	rows := testRows(text)
	if len(promises) == 0 || len(rows) == 0 {
		return []string{fmt.Sprintf("%d promises and %d rows of tests", len(promises), len(rows))}
	}
	var complaints []string
	for _, name := range slices.Sorted(maps.Keys(promises)) {
		if len(rows[name]) == 0 && !strings.Contains(promises[name], "unproven") {
			complaints = append(complaints, name+" has no test in the table and does not say unproven")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		switch {
		case len(rows[name]) == 0:
			complaints = append(complaints, "the row of "+name+" names no test")
		case promises[name] == "" && !strings.Contains(text, "\n- **"+name+"** "):
			complaints = append(complaints, "there is no "+name+", and the table has tests of it")
		}
	}
	return complaints
}

// testRows returns the tests that the table names for each promise, which may have
// several rows.
func testRows(text string) map[string][]string {
	rows := map[string][]string{}
	for _, match := range regexp.MustCompile(`(?m)^\| ([PN]\d+) \|(.*)$`).FindAllStringSubmatch(text, -1) {
		rows[match[1]] = append(rows[match[1]], namedTests(match[2])...)
	}
	return rows
}

// sections cuts text at the headings that match, whose first group is the name;
// a section ends at the next heading of any level.
func sections(text string, heading *regexp.Regexp) map[string]string {
	any := regexp.MustCompile(`(?m)^#+ `)
	found := map[string]string{}
	for _, at := range heading.FindAllStringSubmatchIndex(text, -1) {
		body := text[at[1]:]
		if end := any.FindStringIndex(body); end != nil {
			body = body[:end[0]]
		}
		found[text[at[2]:at[3]]] = body
	}
	return found
}

func namedTests(text string) []string {
	return regexp.MustCompile(`\b(?:Test|Fuzz|Example)[A-Z]\w*`).FindAllString(text, -1)
}

// testNames lists every test, fuzz target and example of the module.
func testNames(t *testing.T) []string {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w+)\(`)
	var names []string
	for _, path := range sourceFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, match := range declaration.FindAllStringSubmatch(read(t, path), -1) {
			names = append(names, match[1])
		}
	}
	if len(names) == 0 {
		t.Fatal("no test found")
	}
	return names
}

// TestLinks follows the links in the documents that lead to files of this module.
func TestLinks(t *testing.T) {
	followed := 0
	for _, path := range sourceFiles(t) {
		if filepath.Ext(path) != ".md" {
			continue
		}
		for _, target := range relativeLinks(read(t, path)) {
			followed++
			if _, err := os.Stat(filepath.Join(root(t), filepath.Dir(path), target)); err != nil {
				t.Errorf("%s links to %s: %v", path, target, err)
			}
		}
	}
	if followed == 0 {
		t.Fatal("no link found")
	}
}

// relativeLinks returns the targets of Markdown links that are paths, without
// their fragments.
func relativeLinks(text string) []string {
	var targets []string
	for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(match[1], "#")
		if target != "" && !strings.Contains(target, ":") {
			targets = append(targets, target)
		}
	}
	return targets
}

// TestEveryModuleHasItsReason looks for each module of go.mod in the table of
// CONTRIBUTING.md, and for rows about modules that are gone.
func TestEveryModuleHasItsReason(t *testing.T) {
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+`).FindAllStringSubmatch(read(t, "go.mod"), -1)
	rows := regexp.MustCompile("(?m)^\\| `([a-z0-9.-]+\\.[a-z]+/\\S+)` \\|").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(required) == 0 || len(rows) == 0 {
		t.Fatalf("%d modules in go.mod, %d rows in CONTRIBUTING.md", len(required), len(rows))
	}
	want, got := firstGroups(required), firstGroups(rows)
	for _, module := range want {
		if !slices.Contains(got, module) {
			t.Errorf("CONTRIBUTING.md says nothing about %s", module)
		}
	}
	for _, module := range got {
		if !slices.Contains(want, module) {
			t.Errorf("CONTRIBUTING.md explains %s, which go.mod does not have", module)
		}
	}
}

func firstGroups(matches [][]string) []string {
	var groups []string
	for _, m := range matches {
		groups = append(groups, m[1])
	}
	return groups
}

// TestDocumentChecksCanFail shows the checks above what they must find.
func TestDocumentChecksCanFail(t *testing.T) {
	const text = "### P1 One\nsee [x](gone/file.md#part), [y](https://example.org)\n### P2 Two\nnothing\n" +
		"### P3 Three\nis unproven\n## Other\n- **N1** not this\n" +
		"| P1 | a | `TestA` |\n| P1 | b | `TestB`, `FuzzC` |\n| P3 | c | none |\n| P4 | d | `TestD` |\n| N1 | e | `TestE` |\n"
	if got, want := testRows(text)["P1"], []string{"TestA", "TestB", "FuzzC"}; !slices.Equal(got, want) {
		t.Errorf("tests of P1: %q, want %q", got, want)
	}
	want := []string{
		"P2 has no test in the table and does not say unproven", "the row of P3 names no test", "there is no P4, and the table has tests of it",
	}
	if got := unprovenPromises(text); !slices.Equal(got, want) {
		t.Errorf("complaints: %q, want %q", got, want)
	}
	if got := unprovenPromises("### P1 One\nTestA\n"); len(got) != 1 {
		t.Errorf("without a table: %q", got)
	}
	if got := relativeLinks(text); !slices.Equal(got, []string{"gone/file.md"}) {
		t.Errorf("links: %q", got)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
