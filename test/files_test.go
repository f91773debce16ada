package test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestForbiddenWords looks for what must not be in a published tree: paths of one
// machine, download hosts (the tools know theirs), and reminders to oneself.
func TestForbiddenWords(t *testing.T) {
	// Put together here, so that this file does not find itself.
	forbidden := []string{
		"/" + "work/", "/" + "root/", "/home/" + "user", "/Use" + "rs/",
		"proxy.golang" + ".org", "sum.golang" + ".org", "deb.debian" + ".org", "registry.npmjs" + ".org", "pypi" + ".org",
		"TO" + "DO", "FIX" + "ME", "XX" + "X ",
	}
	checked := 0
	for _, path := range sourceFiles(t) {
		if filepath.Base(path) == "go.sum" || filepath.Base(path) == "LICENSE" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root(t), path))
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, bad := range found(string(text), forbidden) {
			t.Errorf("%s", path+bad)
		}
	}
	if checked == 0 {
		t.Fatal("no file found")
	}
	if got := found("a\nsee /"+"root/x", forbidden); len(got) != 1 {
		t.Errorf("in a text with one forbidden path: %q", got)
	}
}

func found(text string, forbidden []string) []string {
	var hits []string
	for i, line := range strings.Split(text, "\n") {
		for _, word := range forbidden {
			if strings.Contains(line, word) {
				hits = append(hits, fmt.Sprintf(":%d: holds %q", i+1, word))
			}
		}
	}
	return hits
}

// sourceFiles lists the module's files, relative to its root: what git would
// commit, or everything where there is no git.
func sourceFiles(t *testing.T) []string {
	t.Helper()
	git := exec.Command("git", "-C", root(t), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	if out, err := git.Output(); err == nil {
		return existing(t, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
	}
	var files []string
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root(t), path)
		if d.IsDir() && (name == "build" || name == ".git") {
			return filepath.SkipDir
		}
		if d.Type().IsRegular() {
			files = append(files, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// existing drops files that git still lists and that were removed.
func existing(t *testing.T, files []string) []string {
	t.Helper()
	return slices.DeleteFunc(files, func(name string) bool {
		info, err := os.Lstat(filepath.Join(root(t), name))
		return err != nil || !info.Mode().IsRegular()
	})
}
