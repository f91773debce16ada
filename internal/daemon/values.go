package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// A kind is how a value is written in the settings file.
type kind int

const (
	text kind = iota
	number
	boolean
)

// A Value is a variable that a setting fills. Make one with [Text], [Bool],
// [Switch], [Number] or [Seconds].
type Value struct {
	kind kind
	set  func(string) error
	get  func() string
}

// Text is a text that passes check.
func Text(variable *string, check func(string) error) Value {
	return Value{
		kind: text,
		set: func(v string) error {
			if err := check(v); err != nil {
				return err
			}
			*variable = v
			return nil
		},
		get: func() string { return *variable },
	}
}

// OneOf returns a check for [Text].
func OneOf(words ...string) func(string) error {
	return func(v string) error {
		if !slices.Contains(words, v) {
			return fmt.Errorf("%.80q is not one of %q", v, words)
		}
		return nil
	}
}

// Bool is true or false: a flag without an argument.
func Bool(variable *bool) Value {
	v := Switch(variable, "true", "false")
	v.kind = boolean
	return v
}

// Switch is one of two words.
func Switch(variable *bool, on, off string) Value {
	return Value{
		kind: text,
		set: func(v string) error {
			if v != on && v != off {
				return fmt.Errorf("%.80q is neither %s nor %s", v, on, off)
			}
			*variable = v == on
			return nil
		},
		get: func() string {
			if *variable {
				return on
			}
			return off
		},
	}
}

// Number is a decimal number from 1 to most.
func Number(variable *int, most int) Value {
	return Value{
		kind: number,
		set: func(v string) (err error) {
			*variable, err = parseNumber(v, most)
			return err
		},
		get: func() string { return strconv.Itoa(*variable) },
	}
}

// Seconds is a [Number] that counts seconds.
func Seconds(variable *time.Duration, most int) Value {
	return Value{
		kind: number,
		set: func(v string) error {
			n, err := parseNumber(v, most)
			*variable = time.Duration(n) * time.Second
			return err
		},
		get: func() string { return strconv.Itoa(int(*variable / time.Second)) },
	}
}

// parseNumber accepts each number in one spelling.
func parseNumber(v string, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most || strconv.Itoa(n) != v {
		return 0, fmt.Errorf("%.80q is not a number from 1 to %d", v, most)
	}
	return n, nil
}
