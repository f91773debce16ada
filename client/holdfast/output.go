package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

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

// say is show for one line of text.
func (a *app) say(v any, format string, args ...any) error {
	return a.show(v, func() error {
		_, err := fmt.Fprintln(a.stdout, printable(fmt.Sprintf(format, args...)))
		return err
	})
}

// json prints v for programs.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// table prints rows in aligned columns. Cells may hold text of other parties, so each is
// made fit for one line.
func table(w io.Writer, rows ...[]string) error {
	widths := map[int]int{}
	for _, row := range rows {
		for i, cell := range row[:max(len(row)-1, 0)] {
			widths[i] = max(widths[i], utf8.RuneCountInString(oneLine(cell)))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			fmt.Fprintf(&line, "%-*s  ", widths[i], oneLine(cell))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// printable makes text from elsewhere fit for a terminal; it may have several
// lines.
func printable(s string) string { return clean.Lines(s) }

// oneLine makes text from elsewhere fit for a part of a line: a newline in it is shown as
// \n, and begins no line that could be taken for the tool's.
func oneLine(s string) string { return clean.Line(strings.ReplaceAll(s, "\n", `\n`)) }

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

// clock shows a time of the next hours in local time, without a date where it is today.
func clock(t time.Time) string {
	if t = t.Local(); t.YearDay() != time.Now().YearDay() {
		return t.Format("2006-01-02 15:04")
	}
	return t.Format("15:04")
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
