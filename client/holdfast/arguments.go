package main

import (
	"errors"
	"fmt"
	"math"
	"os/user"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"holdfast/internal/keys"
)

// arguments accepts one argument for each of the names.
func arguments(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fmt.Errorf("%s is missing", names[len(args)])
		case len(args) > len(names):
			return fmt.Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// oneKey accepts a key's name and further arguments.
func oneKey(further ...string) cobra.PositionalArgs {
	all := arguments(append([]string{"NAME"}, further...)...)
	return func(cmd *cobra.Command, args []string) error {
		if err := all(cmd, args); err != nil {
			return err
		}
		return usageError(keys.CheckName(args[0]))
	}
}

// userValue is an option that takes a user, by name or uid. It holds the uid.
type userValue int64

// Set implements pflag.Value.
func (u *userValue) Set(text string) error {
	if n, err := strconv.ParseUint(text, 10, 32); err == nil && n != math.MaxUint32 {
		*u = userValue(n)
		return nil
	}
	known, err := user.Lookup(text)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(known.Uid, 10, 32)
	*u = userValue(n)
	return err
}

// String implements pflag.Value. It is empty where no user was given.
func (u *userValue) String() string {
	if *u < 0 {
		return ""
	}
	return strconv.FormatInt(int64(*u), 10)
}

// Type implements pflag.Value.
func (u *userValue) Type() string { return "user" }

// exclusive rejects a command line that gives both of two options.
func exclusive(one, other string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed(one) && cmd.Flags().Changed(other) {
			return usagef("give one of them", "--%s and --%s exclude each other", one, other)
		}
		return nil
	}
}

// badOption returns the error for a bad option in the words of this tool.
func badOption(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		option := dashed(unknown.GetSpecifiedName(), unknown.GetSpecifiedShortnames())
		return usagef(didYouMean(option, optionNames(cmd), cmd.CommandPath()+" --help lists the options"), "there is no option %s", option)
	case errors.As(err, &bare):
		return fmt.Errorf("%s needs a value", dashed(bare.GetSpecifiedName(), bare.GetSpecifiedShortnames()))
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s wants %s, not %q", invalid.GetFlag().Name, wanted(invalid.GetFlag()), invalid.GetValue())
	case errors.As(err, &syntax):
		return fmt.Errorf("%q is not an option", syntax.GetSpecifiedFlag())
	}
	return err
}

// dashed writes an option as it was given: alone, or among one-letter ones.
func dashed(name, letters string) string {
	if letters != "" {
		return "-" + name[:1]
	}
	return "--" + name
}

// wanted describes the value that an option takes.
func wanted(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a number"
	case "uintSlice":
		return "a number, or several with commas"
	case "user":
		return "a uid or the name of a user of this machine"
	case "ipSlice":
		return "an IP address"
	case "bool":
		return "no value"
	}
	return "another value"
}
