package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/client"
	"holdfast/internal/fault"
)

// nearest returns the words that typed may be a slip of, by cobra's measure for commands:
// at most two letters differ, or typed is the beginning. A word that differs only in
// upper and lower case is meant alone.
func nearest(typed string, words []string) []string {
	if i := slices.IndexFunc(words, func(word string) bool { return strings.EqualFold(word, typed) }); i >= 0 {
		return words[i : i+1]
	}
	c := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, word := range words {
		c.AddCommand(&cobra.Command{Use: word, Run: func(*cobra.Command, []string) {}})
	}
	return c.SuggestionsFor(typed)
}

// didYouMean returns a hint that names the words that typed may be a slip of, and then
// the other hint.
func didYouMean(typed string, words []string, other string) string {
	near := nearest(typed, words)
	if typed == "" || len(near) == 0 {
		return other
	}
	hint := "did you mean " + strings.Join(near, " or ") + "?"
	if other != "" {
		hint += " " + other
	}
	return hint
}

// optionNames returns the options of a command, with their dashes.
func optionNames(cmd *cobra.Command) (names []string) {
	add := func(f *pflag.Flag) { names = append(names, "--"+f.Name) }
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}

// commandNames returns the commands that a group leads to.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		names = append(names, sub.Name())
	}
	return names
}

// unknownWord returns the error of a value that is none of words.
func unknownWord(typed string, words []string, err error) error {
	p := *explain(usageError(err))
	p.hint, p.err = didYouMean(typed, words, p.hint), err
	return &p
}

// meantKey adds to an error about a key that the caller may not use, or that is not
// there, which of the caller's keys may be meant.
func meantKey(ctx context.Context, c *client.Client, name string, err error) error {
	e, ok := fault.AsError(err)
	if !ok || e.Kind != fault.Denied && e.Kind != fault.NotFound {
		return err
	}
	list, listErr := c.Keys(ctx, false)
	names := make([]string, len(list))
	for i, k := range list {
		names[i] = k.Name
	}
	if listErr != nil || slices.Contains(names, name) {
		return err
	}
	p := *explain(err)
	p.hint, p.err = didYouMean(name, names, p.hint), err
	return &p
}
