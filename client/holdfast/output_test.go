package main

import (
	"strings"
	"testing"
)

// Columns stay columns: with empty cells, text of several lines, and letters that are
// longer than a byte.
func TestTable(t *testing.T) {
	var out strings.Builder
	check(t, table(&out,
		[]string{"NAME", "OWNER", "NOTES"},
		[]string{"alice", "", "PIN wanted"},
		[]string{"bär", "me\nhim", "first\nsecond"},
		[]string{"", "", "hint: x\ty"},
		[]string{"carol", "me", ""},
	))
	const want = `NAME   OWNER    NOTES
alice           PIN wanted
bär    me\nhim  first\nsecond
                hint: x?y
carol  me
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
