package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	clean "holdfast/internal/printable"
)

// jsonFlag adds the option that has show print JSON.
func (a *app) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.asJSON, "json", false, "print JSON, with the member names of the agent's interface")
}

// show prints v as JSON where the command line asks for that, and else calls print.
func (a *app) show(v any, print func() error) error {
	if a.asJSON {
		return a.json(v)
	}
	return print()
}

// json prints v for programs.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table prints rows in aligned columns. Cells may hold text of other parties, so they
// are made printable.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// printable makes text from elsewhere fit for a terminal; it may have several
// lines.
func printable(s string) string { return clean.Lines(s) }

// fold breaks text into lines of at most width bytes, where words are shorter.
func fold(text string, width int) string {
	var b strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
		case column+1+len(word) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// when shows a time in local time, with its zone.
func when(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// note prints a message to stderr that is not an error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "holdfast: note: %s\n", printable(fmt.Sprintf(format, args...)))
}

// overProgress clears the line of progress before other output.
func (a *app) overProgress() {
	if isTerminal(a.stderr) {
		fmt.Fprint(a.stderr, clearLine)
	}
}

// stillWaiting notes on a terminal that the agent has not answered yet.
func (a *app) stillWaiting(waited time.Duration) {
	if isTerminal(a.stderr) && !a.alive.Load() {
		a.note("the agent has not answered for %d s; holdfast status shows what its devices do", int(waited.Seconds()))
	}
}

// clearLine goes back to the start of a terminal's line, and clears it.
const clearLine = "\r\x1b[K"

// progress shows the progress of long work on a terminal, until stop is called. It
// writes nothing where stderr is not a terminal.
func (a *app) progress(what string) (stop func()) {
	if !isTerminal(a.stderr) {
		return func() {}
	}
	a.alive.Store(true)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		started := time.Now()
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			fmt.Fprintf(a.stderr, "\r%s … %d s", what, int(time.Since(started).Seconds()))
			select {
			case <-tick.C:
			case <-done:
				fmt.Fprint(a.stderr, clearLine)
				return
			}
		}
	}()
	return func() { close(done); <-ended; a.alive.Store(false) }
}
