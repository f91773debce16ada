package daemon

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"text/tabwriter"

	"holdfast/internal/guard"
)

// A Setting is one row of a daemon's table of settings.
type Setting struct {
	// Name is the word in the file, and the flag. The file has "limits.size" as the
	// word size of the mapping limits; it has no flag.
	Name  string
	Value Value

	Usage    string  // help of the flag; without it there is no flag
	Variable string  // environment variable that stands in for the flag; may be empty
	Default  Default // nil: the setting may stay without a value
	Machine  Default // instead of Default for the machine's daemon; may be nil
}

// Settings is a daemon's table of settings, and where each value came from. A
// value comes from the command line, else from the environment, else from the
// settings file, else it is the default of the mode that the daemon runs in: a
// user's own daemon, or with the setting "system" the machine's. It is for one
// goroutine, and resolves one command line.
type Settings struct {
	name    string // of the usual file
	list    []Setting
	check   func() error
	file    string            // what was read; empty when nothing was
	origins map[string]string // by setting
}

// NewSettings makes a table with rows in the order in which [Settings.Explain]
// shows them. The usual settings file is ${XDG_CONFIG_HOME:-~/.config}/holdfast/NAME,
// of the machine's daemon /etc/holdfast/NAME. One row is the [Bool] "system".
// When every row has its value, check compares the values with each other; it may be
// nil.
func NewSettings(name string, check func() error, rows ...Setting) *Settings {
	return &Settings{name: name, list: rows, check: check, origins: map[string]string{}}
}

// Flags registers the flags, for [Settings.Resolve] to look at once flags has
// parsed the command line.
func (s *Settings) Flags(flags *flag.FlagSet) {
	flags.String("config", "", "read the configuration from `file`")
	for _, row := range s.list {
		switch {
		case row.Usage == "":
		case row.Value.kind == boolean:
			flags.Bool(row.Name, false, row.Usage)
		default:
			flags.String(row.Name, "", row.Usage)
		}
	}
}

// Resolve gives every setting its value. The settings file is the one that --config
// names, else the usual one when it exists.
func (s *Settings) Resolve(flags *flag.FlagSet, environment Environment) error {
	given := map[string]string{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })
	if err := s.read(given, environment); err != nil {
		return err
	}
	for _, row := range s.list {
		value, found := given[row.Name]
		origin := "--" + row.Name
		if !found && row.Variable != "" {
			value, origin = environment(row.Variable), row.Variable
			found = value != ""
		}
		if found {
			if err := s.set(row, value, origin); err != nil {
				return err
			}
		}
	}
	if err := s.fillIn(flags, environment); err != nil {
		return err
	}
	if s.check == nil {
		return nil
	}
	return s.check()
}

// read reads the settings file. A file that --config names has to be there. The
// usual one does not, but one that is there and cannot be read is an error: the
// daemon would run with other settings than its owner wrote.
func (s *Settings) read(given map[string]string, environment Environment) error {
	if path, found := given["config"]; found {
		if err := guard.CheckPath(path); err != nil {
			return fmt.Errorf("--config: %w", err)
		}
		return s.Load(path)
	}
	path := filepath.Join(systemDirectory, s.name)
	if given["system"] != "true" {
		var err error
		if path, err = environment.xdg("XDG_CONFIG_HOME", ".config", "holdfast/"+s.name); err != nil {
			return nil // no home, no file; a default that needs a home says so
		}
	}
	if err := s.Load(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s *Settings) set(row Setting, value, origin string) error {
	if err := row.Value.set(value); err != nil {
		return fmt.Errorf("%s: %s: %w", origin, row.Name, err)
	}
	s.origins[row.Name] = origin
	return nil
}

// fillIn gives every setting that has no value the default of the mode. It comes
// last because the file may choose the mode, and because a default that is not
// needed must not fail: a daemon with --state and --socket works without HOME.
func (s *Settings) fillIn(flags *flag.FlagSet, environment Environment) error {
	for _, row := range s.list {
		if s.origins[row.Name] != "" {
			continue
		}
		makeDefault := row.Default
		if row.Machine != nil && s.system() {
			makeDefault = row.Machine
		}
		s.origins[row.Name] = "default"
		if makeDefault == nil {
			continue
		}
		value, err := makeDefault(environment)
		switch {
		case err != nil && row.Usage != "":
			noun, _ := flag.UnquoteUsage(flags.Lookup(row.Name))
			return fmt.Errorf("%s: %w; --%s names a %s", row.Name, err, row.Name, noun)
		case err != nil:
			return fmt.Errorf("%s: %w", row.Name, err)
		case value == "":
			continue
		}
		if err := s.set(row, value, "default"); err != nil {
			return err
		}
	}
	return nil
}

// system reports whether the settings are those of the machine's daemon, rather
// than of a user's.
func (s *Settings) system() bool {
	for _, row := range s.list {
		if row.Name == "system" {
			return row.Value.get() == "true"
		}
	}
	return false
}

// Origin returns where the value of a setting came from: "--state",
// "HOLDFAST_SOCKET", "/etc/holdfast/agent.yaml:3" or "default". It is empty for an
// unknown setting.
func (s *Settings) Origin(name string) string { return s.origins[name] }

// Explain writes each setting with its value and where that came from.
func (s *Settings) Explain(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range s.list {
		value := row.Value.get()
		if value == "" {
			value = "-"
		}
		// Errors of a tabwriter show in Flush.
		fmt.Fprintf(table, "%s\t%s\t(%s)\n", row.Name, value, s.origins[row.Name])
	}
	return table.Flush()
}
