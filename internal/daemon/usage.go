package daemon

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"holdfast/internal/fault"
)

// usage writes the options and an example.
func (p *Program) usage(w io.Writer, flags *flag.FlagSet) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "Usage:\n  %s [OPTION]...\n\nOptions:\n", p.Name)
	flags.VisitAll(func(f *flag.Flag) {
		noun, text := flag.UnquoteUsage(f)
		if noun != "" {
			noun = " " + strings.ToUpper(noun)
		}
		fmt.Fprintf(t, "  --%s%s\t%s\n", f.Name, noun, text)
	})
	fmt.Fprintf(t, "\nExample:\n  %s\n", p.Example)
	return t.Flush()
}

// parse parses the command line. Its errors write options with two dashes.
func (p *Program) parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	if err := p.checkOptions(flags, args); err != nil {
		return err
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return p.wrong("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// checkOptions finds options that do not exist, and those whose value is missing.
func (p *Program) checkOptions(flags *flag.FlagSet, args []string) error {
	for i := 0; i < len(args); i++ {
		name, _, assigned := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-"), "=")
		f := flags.Lookup(name)
		switch {
		case !strings.HasPrefix(args[i], "-") || args[i] == "--" || args[i] == "-", name == "help", name == "h":
			return nil
		case f == nil:
			return p.wrong("there is no option --%s", name)
		case assigned || isSwitch(f):
		case i+1 == len(args):
			return p.wrong("--%s needs a value", name)
		default:
			i++ // the value
		}
	}
	return nil
}

// isSwitch reports whether an option stands without a value.
func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// wrong returns an error about the command line.
func (p *Program) wrong(format string, args ...any) error {
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf(format, args...), Hint: p.Name + " --help lists the options"}
}
