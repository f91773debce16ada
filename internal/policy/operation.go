package policy

import "slices"

// An Operation is one kind of request.
type Operation string

// The operations of an agent.
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
	Seal                    Operation = "seal"         // store or forget a secret; concerns a name of the caller's own
	Unseal                  Operation = "unseal"       // open a secret; concerns a name of the caller's own
	ListCards               Operation = "list-cards"   // the readers and their cards; concerns no key
	ManageCards             Operation = "manage-cards" // a card's PIN, PUK and management key; concerns no key
	Status                  Operation = "status"       // the state of the agent, or of the broker; concerns no key and no profile
	Audit                   Operation = "audit"        // the audit log; concerns no key
)

// The operations of a broker, besides Status: the credential of a profile in one of
// its modes.
const (
	Proxy       Operation = "proxy"
	Certificate Operation = "certificate"
	Token       Operation = "token"
)

// Words that stand for several operations in a rule.
const (
	wordUse    = "use"    // everything that signs, and unlock
	wordManage = "manage" // list, create, delete, export, adopt, bind, install-certificate, seal
	wordAll    = "all"

	wordCredentials = "credentials" // of a broker: proxy, certificate, token
)

// Operations lists every operation of an agent.
func Operations() []Operation { return slices.Clone(operations[:len(operations)-3]) }

// BrokerOperations lists every operation of a broker.
func BrokerOperations() []Operation { return []Operation{Proxy, Certificate, Token, Status} }

// operations are those of both.
var operations = [...]Operation{
	List, Create, Delete, Export, Adopt, Bind, InstallCertificate,
	SignTLSClient, SignTLSServer, SignCertificateRequest, SignServiceAccountToken, SignClientAssertion, SignAWSRequest,
	Unlock, Seal, Unseal, ListCards, ManageCards, Status, Audit,
	Proxy, Certificate, Token,
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
	everything  = operationSet(1)<<len(operations) - 1
	credentials = setOf(Proxy, Certificate, Token)
	keyless     = setOf(ListCards, ManageCards, Status, Audit)
	keyed       = everything &^ keyless &^ credentials
	manage      = setOf(List, Create, Delete, Export, Adopt, Bind, InstallCertificate, Seal)
	use         = setOf(SignTLSClient, SignTLSServer, SignCertificateRequest, SignServiceAccountToken,
		SignClientAssertion, SignAWSRequest, Unlock)
)
