package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"holdfast/test/pivcard"
)

// A desk is where a user has a card and its reader. The user's hands are
// lines, of which each is answered by one line, "ok" and the line itself, or
// "error" and why not:
//
//	touch               touches the card, which must be asking for it
//	touch-after 500ms   touches it so long after it asks, from now on; 0s is never
//	remove              takes it out of its reader
//	insert              puts it back
//
// The answer to remove and insert comes when pcscd has noticed.
type desk struct {
	rig  *pivcard.Rig
	card *pivcard.Card
}

// obey does what the lines say until they end.
func (d *desk) obey(lines io.Reader, answers io.Writer) error {
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		answer := "ok " + scanner.Text()
		if err := d.do(strings.Fields(scanner.Text())); err != nil {
			answer = fmt.Sprintf("error %s: %v", scanner.Text(), err)
		}
		if _, err := fmt.Fprintln(answers, answer); err != nil {
			return err
		}
	}
	return scanner.Err()
}

var (
	errUnknown   = errors.New("the words are touch, touch-after DURATION, remove, insert")
	errNoTouch   = errors.New("the card is not asking for a touch")
	errNotInside = errors.New("the card is in no reader")
)

func (d *desk) do(words []string) error {
	switch {
	case len(words) == 2 && words[0] == "touch-after":
		after, err := time.ParseDuration(words[1])
		if err == nil {
			d.card.TouchAfter(after)
		}
		return err
	case len(words) != 1:
		return errUnknown
	}
	switch words[0] {
	case "touch":
		if !d.card.Touch() {
			return errNoTouch
		}
		return nil
	case "remove":
		if d.rig.ReaderOf(d.card) == "" {
			return errNotInside
		}
		return d.rig.Remove(d.card)
	case "insert":
		return d.rig.Insert(d.card)
	}
	return errUnknown
}
