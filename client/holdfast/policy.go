package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/internal/agentwire"
	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

// checkOptions holds the options of `policy check`.
type checkOptions struct {
	uid, owner int64
	gids       []uint
	unit       string
	forUID     int64
	forUnit    string
	key        string
	operation  string
	file       string
	admin      bool
	broker     bool
	profile    string
}

func (a *app) policyCommands() *cobra.Command {
	o := checkOptions{uid: -1, owner: -1, forUID: -1}
	cmd := &cobra.Command{
		Use: "check --uid USER --operation OPERATION", Short: "ask whether a user may use a key, and which rule decides",
		Long: `Asks the agent's policy, or without an agent the policy in --file, whether a user may
use a key for an operation, and names the rule that decides. The exit code is 0 when
it is allowed and 4 when it is denied. With --file alone the file is checked for
mistakes. With --broker the file is a broker's.

` + fold("Operations: "+words(policy.Operations())+". Of a broker: "+words(policy.BrokerOperations())+".", 80),
		Example: indent("holdfast policy check --uid root --key alice --operation sign-tls-client"),
		Args:    arguments(),
		PreRunE: func(*cobra.Command, []string) error { return o.check() },
		RunE:    a.action(func(ctx context.Context, _ []string) error { return a.checkPolicy(ctx, &o) }),
	}
	f := cmd.Flags()
	f.Var((*userValue)(&o.uid), "uid", "the `USER` that asks, by name or uid")
	f.UintSliceVar(&o.gids, "gid", nil, "the `GID` of a group of the user's, the primary one first; may be given several times")
	f.StringVar(&o.unit, "unit", "", "the system `UNIT` that the user's process runs in")
	f.Var((*userValue)(&o.forUID), "for-uid", "the `USER` that a broker acts for, by name or uid")
	f.StringVar(&o.forUnit, "for-unit", "", "with --for-uid: the `UNIT` of that user's process")
	f.StringVar(&o.key, "key", "", "the `NAME` of the key")
	f.StringVar(&o.operation, "operation", "", "the `OPERATION`, what to do with the key")
	f.StringVar(&o.file, "file", "", "a policy `FILE` to ask instead of the agent")
	f.Var((*userValue)(&o.owner), "owner", "with --file: the `USER` that the key belongs to (default the one of --uid)")
	f.BoolVar(&o.admin, "admin", false, "with --file: for a request over the admin socket")
	f.BoolVar(&o.broker, "broker", false, "the policy in --file is a broker's")
	f.StringVar(&o.profile, "profile", "", "with --broker: the `NAME` of the profile")
	noDefault(cmd, "gid")
	complete(cmd, "operation", policy.Operations())
	a.jsonFlag(cmd)
	return a.group("policy", "ask what the policy says", "holdfast policy check --uid 1000 --key alice --operation sign-tls-client", cmd)
}

// policySummary is the JSON form of a policy file that is valid.
type policySummary struct {
	File  string `json:"file"`
	Rules int    `json:"rules"`
}

// onlyFile reports whether the command only checks the file.
func (o *checkOptions) onlyFile() bool { return o.file != "" && o.uid < 0 && o.operation == "" }

// check finds mistakes that need neither agent nor file.
func (o *checkOptions) check() error {
	switch {
	case o.broker && o.file == "":
		return usagef("name the broker's policy with --file", "--broker is for --file")
	case o.onlyFile():
		return nil
	case o.uid < 0:
		return usagef("name a user: --uid alice, or --uid 1000", "--uid is missing")
	case o.operation == "":
		return usagef("one of "+words(o.operations()), "--operation is missing")
	case !slices.Contains(o.operations(), policy.Operation(o.operation)):
		return usagef(didYouMean(o.operation, texts(o.operations()), "one of "+words(o.operations())), "there is no operation %q", o.operation)
	case o.broker && (o.key != "" || o.owner >= 0 || o.admin || o.forUID >= 0):
		return usagef("a broker's policy is about profiles", "--key, --owner, --admin and --for-uid are for an agent's policy")
	case !o.broker && o.profile != "":
		return usagef("an agent's policy is about keys", "--profile is for --broker")
	case o.broker && o.profile == "" && !keyless(policy.Operation(o.operation)):
		return usagef("--profile names the profile", "--profile is missing: %s concerns a profile", o.operation)
	case o.key == "" && !o.broker && !keyless(policy.Operation(o.operation)):
		return usagef("--key names the key that it is done with", "--key is missing: %s concerns a key", o.operation)
	case o.file == "" && (o.owner >= 0 || o.admin):
		return usagef("the agent knows the owners of its keys", "--owner and --admin are for --file")
	case o.forUnit != "" && o.forUID < 0:
		return usagef("a broker reports both", "--for-unit goes with --for-uid")
	}
	if slices.ContainsFunc(o.gids, func(gid uint) bool { return gid >= math.MaxUint32 }) {
		return usagef("", "--gid needs a gid")
	}
	if o.key == "" {
		return nil
	}
	return usageError(keys.CheckName(o.key))
}

// operations returns the operations of the policy.
func (o *checkOptions) operations() []policy.Operation {
	if o.broker {
		return policy.BrokerOperations()
	}
	return policy.Operations()
}

// keyless reports whether an operation concerns no key.
func keyless(op policy.Operation) bool { return op == policy.Status || op == policy.Audit }

func (o *checkOptions) groups() []uint32 {
	groups := make([]uint32, len(o.gids))
	for i, gid := range o.gids {
		groups[i] = uint32(gid)
	}
	return groups
}

func (a *app) checkPolicy(ctx context.Context, o *checkOptions) error {
	var answer agentwire.CheckPolicyReply
	var err error
	switch {
	case o.onlyFile():
		var p *policy.Policy
		if p, err = o.read(); err != nil {
			return err
		}
		return a.show(policySummary{o.file, p.Rules()}, func() error {
			_, err := fmt.Fprintf(a.stdout, "%s: valid, %s\n", oneLine(o.file), plural(p.Rules(), "rule", "rules"))
			return err
		})
	case o.file != "":
		answer, err = o.decide()
	default:
		answer, err = a.askPolicy(ctx, o)
	}
	if err != nil {
		return err
	}
	err = a.show(answer, func() error {
		verdict := map[bool]string{true: "allowed", false: "denied"}[answer.Allowed]
		return table(a.stdout, []string{verdict, ""}, []string{"rule", answer.Rule}, []string{"reason", answer.Reason})
	})
	if err == nil && !answer.Allowed {
		return answered{exitDenied}
	}
	return err
}

func (a *app) askPolicy(ctx context.Context, o *checkOptions) (agentwire.CheckPolicyReply, error) {
	p := agentwire.CheckPolicyParameters{UID: uint32(o.uid), GIDs: o.groups(), Unit: o.unit, Key: o.key, Operation: o.operation, ForUnit: o.forUnit}
	if o.forUID >= 0 {
		p.ForUID = new(uint32(o.forUID))
	}
	return fromAgent(ctx, a, answerTime, func(c *client.Client) (agentwire.CheckPolicyReply, error) { return c.CheckPolicy(ctx, p) })
}

// decide returns the decision of the policy file.
func (o *checkOptions) decide() (agentwire.CheckPolicyReply, error) {
	p, err := o.read()
	if err != nil {
		return agentwire.CheckPolicyReply{}, err
	}
	var names peer.Names
	id := peer.Identity{UID: uint32(o.uid), User: names.User(uint32(o.uid)), Groups: o.groups(), Unit: o.unit, GID: peer.OverflowUID}
	if len(o.gids) > 0 {
		id.GID = id.Groups[0]
	}
	owner := id.UID
	if o.owner >= 0 {
		owner = uint32(o.owner)
	}
	q := policy.Query{
		Peer: id, Admin: o.admin, Operation: policy.Operation(o.operation), Key: o.key,
		Owner: owner, OwnerUser: names.User(owner), Profile: o.profile,
	}
	if o.forUID >= 0 {
		q.Reported = &policy.Reported{UID: uint32(o.forUID), User: names.User(uint32(o.forUID)), Unit: o.forUnit}
	}
	d := p.Decide(q)
	reason := d.Reason
	if d.Where != "" {
		reason = d.Where + ": " + reason
	}
	return agentwire.CheckPolicyReply{Allowed: d.Allowed, Rule: d.Rule, Reason: reason}, nil
}

// readPolicy reads an agent's policy.
func readPolicy(path string) (*policy.Policy, error) { return (&checkOptions{file: path}).read() }

// read reads the policy in the file.
func (o *checkOptions) read() (*policy.Policy, error) {
	parse, program := policy.ParseFile, "an agent"
	if o.broker {
		parse, program = policy.ParseBrokerFile, "a broker"
	}
	p, err := parse(o.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, failf(program+" keeps its old policy until the file is right", "%w", err)
	}
	if err != nil {
		return nil, failf("name a file that exists and that you may read", "%w", err)
	}
	return p, nil
}
