package policy_test

import (
	"fmt"
	"testing"

	"holdfast/internal/peer"
	"holdfast/internal/policy"
)

func Example() {
	p, err := policy.Parse("policy.yaml", []byte(`
version: 1
rules:
  - name: the kubelet signs in with the node's key
    allow: [sign-tls-client]
    units: [kubelet.service]
    keys: [node]
    owner: machine
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	kubelet := peer.Identity{UID: 0, User: "root", PID: 812, Unit: "kubelet.service"}
	q := policy.Query{Peer: kubelet, Operation: policy.SignTLSClient, Key: "node.2", Owner: 0, OwnerUser: "root"}
	d := p.Decide(q)
	fmt.Println(d.Allowed, d.Where, d.Reason)

	q.Operation = policy.Export
	d = p.Decide(q)
	fmt.Println(d.Allowed, d.Rule, d.Reason)
	// Output:
	// true policy.yaml:4 the rule allows sign-tls-client
	// false default no rule matches
}

func ExampleParse_faults() {
	_, err := policy.Parse("policy.yaml", []byte(`version: 1
rules:
  - allow: [sgin-tls-client]
    uids: [65534]
    key: [web]
    owner: self
`))
	fmt.Println(err)
	// Output:
	// policy.yaml:3: there is no operation "sgin-tls-client" for an agent; there are use, manage, all, list, create, delete, export, adopt, bind, install-certificate, sign-tls-client, sign-tls-server, sign-certificate-request, sign-service-account-token, sign-client-assertion, sign-aws-request, unlock, seal, unseal, list-cards, manage-cards, status, audit
	// policy.yaml:4: 65534 stands for every uid that the kernel cannot map: no rule may use it
	// policy.yaml:5: a rule of an agent has no word "key"; the words are allow, anyone, deny, for-uids, for-units, for-users, gids, groups, keys, name, owner, socket, uids, units, users
}

// The decisions that the example file describes are the policy's.
func TestExampleFileDecides(t *testing.T) {
	p, err := policy.ParseFile("../../packaging/examples/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alice := peer.Identity{UID: 1000, User: "alice", GID: 1000}
	root := peer.Identity{UID: 0, User: "root"}
	web := peer.Identity{UID: 33, User: "www-data", GID: 33}
	kubelet := peer.Identity{UID: 0, User: "root", Unit: "kubelet.service"}
	broker := peer.Identity{UID: 998, User: "holdfast-broker", Unit: "holdfast-broker.service"}
	auditor := peer.Identity{UID: 1001, User: "bob", Groups: []uint32{4}}
	own := policy.Query{Key: "laptop", Owner: 1000, OwnerUser: "alice"}
	machine := policy.Query{Key: "node", OwnerUser: "root"}
	deploy := policy.Query{Key: "deploy", OwnerUser: "root"}
	forDeployer, forAlice := deploy, deploy
	forDeployer.Reported = &policy.Reported{Unit: "deploy.service"}
	forAlice.Reported = &policy.Reported{UID: 1000, User: "alice"}
	shop := policy.Query{Key: "web-shop.3", OwnerUser: "root"}
	cases := []struct {
		about string
		who   peer.Identity
		admin bool
		op    policy.Operation
		key   policy.Query
		rule  string
		want  bool
	}{
		{"alice signs", alice, false, policy.SignTLSClient, own, "people own their keys", true},
		{"alice lists", alice, false, policy.List, own, "people own their keys", true},
		{"alice exports", alice, false, policy.Export, own, "nobody takes key files away", false},
		{"alice and the node's key", alice, false, policy.SignTLSClient, machine, "default", false},
		{"alice asks for the state", alice, false, policy.Status, policy.Query{}, "everybody may ask how the agent is", true},
		{"another alice", peer.Identity{UID: 1000, User: "new"}, false, policy.SignTLSClient, own, "default", false},
		{"root makes a key", root, true, policy.Create, machine, "root manages the machine's keys", true},
		{"root makes a key over the wrong socket", root, false, policy.Create, machine, "default", false},
		{"root signs in as the node", root, false, policy.SignTLSClient, machine, "default", false},
		{"root signs for alice", root, true, policy.SignTLSClient, own, "default", false},
		{"root exports", root, true, policy.Export, machine, "nobody takes key files away", false},
		{"the kubelet signs in", kubelet, false, policy.SignTLSClient, machine, "the kubelet signs in with the node's key", true},
		{"the broker signs in", broker, false, policy.SignTLSClient, machine, "the broker signs in", true},
		{"the broker signs in for the deployer", broker, false, policy.SignTLSClient, forDeployer, "the broker signs in with the deployer's key for the deployer alone", true},
		{"the broker signs in for alice", broker, false, policy.SignTLSClient, forAlice, "default", false},
		{"the broker signs in for nobody", broker, false, policy.SignTLSClient, deploy, "default", false},
		{"root says it is for the deployer", root, false, policy.SignTLSClient, forDeployer, "default", false},
		{"the broker asks for a certificate", broker, false, policy.SignCertificateRequest, machine, "default", false},
		{"the broker opens what it sealed", broker, false, policy.Unseal, policy.Query{Key: "broker-loopback", Owner: 998, OwnerUser: "holdfast-broker"}, "people own their keys", true},
		{"the broker opens what alice sealed", broker, false, policy.Unseal, own, "default", false},
		{"root renews the node's certificate", root, true, policy.SignTLSClient, machine, "root signs in to renew the machine's certificates", true},
		{"the kubelet is a web server", kubelet, false, policy.SignTLSServer, shop, "default", false},
		{"the web server signs", web, false, policy.SignTLSServer, shop, "the web servers' TLS keys", true},
		{"the web server signs in", web, false, policy.SignTLSClient, shop, "default", false},
		{"the web server and a name that starts alike", web, false, policy.SignTLSServer, policy.Query{Key: "website", OwnerUser: "root"}, "default", false},
		{"the auditor reads the log", auditor, false, policy.Audit, policy.Query{}, "everybody may ask how the agent is", true},
	}
	for _, c := range cases {
		q := c.key
		q.Peer, q.Admin, q.Operation = c.who, c.admin, c.op
		if got := p.Decide(q); got.Allowed != c.want || got.Rule != c.rule {
			t.Errorf("%s: got %+v, want allowed %t by %q", c.about, got, c.want, c.rule)
		}
	}
}
