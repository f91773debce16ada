package policy

// builtIn is the source of policies that were not read from a file.
const builtIn = "built-in"

// UserDefault is the policy of a user's own agent without a policy file: the
// user may do everything with the user's own keys.
func UserDefault(uid uint32) *Policy {
	return &Policy{source: builtIn, rules: []rule{
		{
			name: "own keys", where: builtIn, allow: true,
			operations: keyed, uids: []uint32{uid}, owner: owner{kind: ownerSelf},
		},
		{
			name: "own agent", where: builtIn, allow: true,
			operations: keyless, uids: []uint32{uid},
		},
	}}
}

// SystemDefault is the policy of a machine agent without a policy file: every
// user manages and uses the user's own keys, and root manages the machine's keys
// (those of uid 0) over the admin socket, certificate requests for them included,
// and manages cards. No caller signs in with the machine's keys until a rule allows it.
func SystemDefault() *Policy {
	return &Policy{source: builtIn, rules: []rule{
		{
			name: "own keys", where: builtIn, allow: true,
			operations: keyed, anyone: true, owner: owner{kind: ownerSelf},
		},
		{
			name: "state of the agent", where: builtIn, allow: true,
			operations: setOf(Status, Audit), anyone: true,
		},
		{
			name: "keys of the machine", where: builtIn, allow: true,
			operations: manage | setOf(SignCertificateRequest, Unlock), uids: []uint32{0}, socket: adminSocket,
			owner: owner{kind: ownerUID, uid: 0},
		},
		{
			name: "state of the agent, for root", where: builtIn, allow: true,
			operations: keyless, uids: []uint32{0},
		},
	}}
}

// BrokerUserDefault is the policy of a user's own broker without a policy file:
// the user may get every credential.
func BrokerUserDefault(uid uint32) *Policy {
	return &Policy{source: builtIn, rules: []rule{{
		name: "own broker", where: builtIn, allow: true,
		operations: credentials | setOf(Status), uids: []uint32{uid},
	}}}
}

// BrokerSystemDefault is the policy of a machine's broker without a policy file:
// its profiles sign in with the machine's keys, so only root may have their
// credentials until a rule allows another caller. Every user may ask for the
// broker's status.
func BrokerSystemDefault() *Policy {
	return &Policy{source: builtIn, rules: []rule{
		{
			name: "credentials for root", where: builtIn, allow: true,
			operations: credentials | setOf(Status), uids: []uint32{0},
		},
		{
			name: "state of the broker", where: builtIn, allow: true,
			operations: setOf(Status), anyone: true,
		},
	}}
}
