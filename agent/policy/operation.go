package policy

import "slices"

// An Operation is one thing that a peer can ask for.
type Operation string

// The operations.
const (
	List                    Operation = "list"
	Create                  Operation = "create"
	Delete                  Operation = "delete"
	Export                  Operation = "export"
	Adopt                   Operation = "adopt"
	Bind                    Operation = "bind"
	InstallCertificate      Operation = "install-certificate"
	SignTLSClient           Operation = "sign-tls-client"
	SignTLSServer           Operation = "sign-tls-server"
	SignCertificateRequest  Operation = "sign-certificate-request"
	SignServiceAccountToken Operation = "sign-service-account-token"
	SignClientAssertion     Operation = "sign-client-assertion"
	SignAWSRequest          Operation = "sign-aws-request"
	Unlock                  Operation = "unlock"
	Seal                    Operation = "seal"   // store or forget a secret; concerns a name of the caller's own
	Unseal                  Operation = "unseal" // open a secret; concerns a name of the caller's own
	Status                  Operation = "status" // the agent's state; concerns no key
	Audit                   Operation = "audit"  // the audit log; concerns no key
)

// Words that stand for several operations in a rule.
const (
	wordUse    = "use"    // everything that signs, and unlock
	wordManage = "manage" // list, create, delete, export, adopt, bind, install-certificate, seal
	wordAll    = "all"
)

// Operations lists every operation.
func Operations() []Operation { return slices.Clone(operations[:]) }

var operations = [...]Operation{
	List, Create, Delete, Export, Adopt, Bind, InstallCertificate,
	SignTLSClient, SignTLSServer, SignCertificateRequest, SignServiceAccountToken, SignClientAssertion, SignAWSRequest,
	Unlock, Seal, Unseal, Status, Audit,
}

// operationSet has one bit for each operation, in the order of operations.
type operationSet uint32

func setOf(list ...Operation) operationSet {
	var set operationSet
	for _, op := range list {
		if i := slices.Index(operations[:], op); i >= 0 {
			set |= 1 << i
		}
	}
	return set
}

// The sets below are never written to.
var (
	everything = operationSet(1)<<len(operations) - 1
	keyless    = setOf(Status, Audit)
	keyed      = everything &^ keyless
	manage     = setOf(List, Create, Delete, Export, Adopt, Bind, InstallCertificate, Seal)
	use        = setOf(SignTLSClient, SignTLSServer, SignCertificateRequest, SignServiceAccountToken,
		SignClientAssertion, SignAWSRequest, Unlock)
)

// operationsOf returns what a word in a rule stands for, and false for a word
// that stands for nothing.
func operationsOf(word string) (operationSet, bool) {
	switch word {
	case wordAll:
		return everything, true
	case wordUse:
		return use, true
	case wordManage:
		return manage, true
	}
	set := setOf(Operation(word))
	return set, set != 0
}
