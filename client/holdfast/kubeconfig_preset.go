package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"holdfast/client/execcredential"
	"holdfast/client/profile"
)

// The values of --preset.
const (
	presetKubectl        = "kubectl"         // and every program that uses client-go
	presetOtherLanguages = "other-languages" // libraries that know less of the protocol
)

func presets() []string { return []string{presetKubectl, presetOtherLanguages} }

// applyPreset completes the options that a preset stands for, and checks those about
// the version.
func (o *addOptions) applyPreset(cmd *cobra.Command) error {
	switch o.preset {
	case presetKubectl:
	case presetOtherLanguages:
		if o.mode != profile.ModeProxy {
			return usagef("leave one of them out", "--preset %s and --mode %s exclude each other: such clients do not tell the plugin for which server they want the credential", o.preset, o.mode)
		}
		if !cmd.Flags().Changed("api-version") {
			o.apiVersion = execcredential.V1Beta1
		}
	default:
		return usagef("one of "+words(presets()), "there is no preset %q", o.preset)
	}
	version, known := execcredential.Version(o.apiVersion)
	if !known || version == execcredential.V1Alpha1 {
		return usagef("--api-version is v1 or v1beta1", "kubectl knows no API version %q", o.apiVersion)
	}
	o.apiVersion = version
	return nil
}

// arguments takes CONTEXT, and the port of a --dedicated-port that stands before it as
// a word of its own.
func (o *addOptions) arguments(cmd *cobra.Command, args []string) error {
	if o.port == autoPort && len(args) == 2 {
		port, context := args[0], args[1]
		if !digits(port) {
			port, context = context, port
		}
		switch {
		case digits(port) && digits(context):
			return usagef("write --dedicated-port=PORT", "%s or %s is the port", port, context)
		case digits(port):
			o.port, args = port, []string{context}
		}
	}
	if err := arguments("CONTEXT")(cmd, args); err != nil {
		return err
	}
	o.context = args[0]
	return nil
}

// digits reports whether a word is a number.
func digits(word string) bool {
	_, err := strconv.ParseUint(word, 10, 64)
	return err == nil
}
