package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/client"
	"holdfast/client/enroll"
	"holdfast/internal/agentwire"
)

func (a *app) certificateCommands() *cobra.Command {
	return a.group("certificate", "request, install, renew and show certificates", "holdfast certificate request alice --subject CN=alice -o alice.csr",
		a.certificateRequest(), a.certificateInstall(), a.certificateRenew(), a.certificateShow())
}

// requestOptions holds the options of `certificate request`.
type requestOptions struct {
	subject string
	dns     []string
	ip      []net.IP
	output  string
}

func (a *app) certificateRequest() *cobra.Command {
	var o requestOptions
	template := &x509.CertificateRequest{}
	cmd := &cobra.Command{
		Use: "request NAME --subject SUBJECT", Short: "make a certificate request, signed by the key",
		Long: `Makes a PKCS #10 certificate request (PEM) to send to a CA. The agent checks that
it is for this key, and the key signs it.`,
		Example: indent("holdfast certificate request alice --subject CN=alice,O=dev -o alice.csr"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		PreRunE: func(*cobra.Command, []string) (err error) {
			template, err = o.template()
			return err
		},
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.Key(ctx, args[0])
			if err != nil {
				return err
			}
			der, err := k.WithContext(ctx).CertificateRequest(template)
			if err != nil {
				return err
			}
			return a.write(o.output, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), 0o644)
		}),
	}
	cmd.Flags().StringVar(&o.subject, "subject", "", "the `SUBJECT`, such as CN=alice,O=dev")
	cmd.Flags().StringArrayVar(&o.dns, "dns", nil, "a DNS `NAME` of the subject; may be given several times")
	cmd.Flags().IPSliceVar(&o.ip, "ip", nil, "an IP `ADDRESS` of the subject; may be given several times")
	noDefault(cmd, "ip")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "write to this `FILE` instead of stdout")
	return cmd
}

func (o *requestOptions) template() (*x509.CertificateRequest, error) {
	if o.subject == "" && len(o.dns) == 0 && len(o.ip) == 0 {
		return nil, usagef("give --subject CN=…, or --dns for a server", "the request has no subject")
	}
	subject, err := enroll.ParseSubject(o.subject)
	if err != nil {
		return nil, usageError(err)
	}
	for _, name := range o.dns {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, usagef("write names in other scripts in their xn-- form", "%q is not a DNS name", name)
		}
	}
	return &x509.CertificateRequest{Subject: subject, DNSNames: o.dns, IPAddresses: o.ip}, nil
}

// readCertificates reads the certificates in a PEM file, DER, in their order.
func (a *app) readCertificates(name string) ([][]byte, error) {
	data, err := a.read(name)
	if err != nil {
		return nil, err
	}
	var chain [][]byte
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, failf("only certificates belong here; holdfast exists to keep keys out of files", "%s holds a private key", inputName(name))
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, failf("the file is damaged: get it again", "%s: certificate %d: %w", inputName(name), len(chain)+1, err)
		}
		chain = append(chain, block.Bytes)
	}
	if len(chain) == 0 {
		what, hint := contentOf(data)
		return nil, failf(hint, "%s holds no certificate in PEM: it %s", inputName(name), what)
	}
	return chain, nil
}

// contentOf says what a file is that holds no certificate in PEM, and what to do.
func contentOf(data []byte) (what, hint string) {
	const other = "name the file that the CA returned"
	block, _ := pem.Decode(data)
	_, derErr := x509.ParseCertificate(data)
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return "is empty", other
	case derErr == nil:
		return "is a certificate in DER", "openssl x509 -inform DER -in FILE turns it into PEM"
	case block != nil && strings.HasSuffix(block.Type, "CERTIFICATE REQUEST"):
		return "is a certificate request", "send it to a CA, and install the certificate that the CA returns"
	case block != nil && (block.Type == "PKCS7" || block.Type == "CMS"):
		return "is a PKCS #7 container", "openssl pkcs7 -print_certs -in FILE takes the certificates out"
	case block != nil:
		return "is PEM of type " + strconv.Quote(block.Type), other
	}
	return "is no PEM", other + "; openssl x509 -inform DER -in FILE turns a certificate from DER into PEM"
}

func encodeCertificates(chain [][]byte) []byte {
	var b bytes.Buffer
	for _, der := range chain {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return b.Bytes()
}

func (a *app) certificateShow() *cobra.Command {
	var asPEM bool
	cmd := &cobra.Command{
		Use: "show NAME", Short: "show a key's certificate chain",
		Example: indent("holdfast certificate show alice"),
		Args:    oneKey(), ValidArgsFunction: a.completeKeys,
		PreRunE: exclusive("pem", "json"),
		RunE: a.asking(func(ctx context.Context, c *client.Client, args []string) error {
			k, err := c.GetKey(ctx, args[0])
			if err != nil {
				return err
			}
			if len(k.Chain) == 0 {
				return failf("holdfast certificate request "+k.Name+" --subject CN=… starts one", "key %s has no certificate", k.Name)
			}
			if asPEM {
				return a.write("", encodeCertificates(k.Chain), 0)
			}
			return a.showChain(k)
		}),
	}
	cmd.Flags().BoolVar(&asPEM, "pem", false, "print the chain itself, PEM")
	a.jsonFlag(cmd)
	return cmd
}

// certificate is the JSON form of a certificate.
type certificate struct {
	Subject   string    `json:"subject"`
	Issuer    string    `json:"issuer"`
	Serial    string    `json:"serial"` // hex
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Names     []string  `json:"names"` // DNS names, addresses, mail addresses, URIs
	SHA256    string    `json:"sha256"`
	DER       []byte    `json:"der"`

	Planned *time.Time `json:"planned,omitempty"` // when it is to be renewed, and for which profile
	Profile string     `json:"profile,omitempty"`
}

// plan notes when a key's certificate is to be renewed, where a profile says so.
func (c *certificate) plan(key string, leaf *x509.Certificate) {
	if at, name := enroll.Planned(key, leaf); name != "" {
		at = at.UTC()
		c.Planned, c.Profile = &at, name
	}
}

func (a *app) showChain(k agentwire.Key) error {
	list := []certificate{}
	for i, der := range k.Chain {
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("certificate %d: %w", i+1, err)
		}
		list = append(list, describe(parsed))
		if i == 0 {
			list[0].plan(k.Name, parsed)
		}
	}
	if a.asJSON {
		return a.json(list)
	}
	for i, c := range list {
		if i > 0 {
			fmt.Fprintln(a.stdout)
		}
		if err := table(a.stdout, c.rows()...); err != nil {
			return err
		}
	}
	return nil
}

func (c certificate) rows() [][]string {
	until := when(c.NotAfter)
	if time.Now().After(c.NotAfter) {
		until += " (EXPIRED)"
	}
	rows := [][]string{
		{"subject", c.Subject}, {"issuer", c.Issuer}, {"serial", c.Serial},
		{"valid from", when(c.NotBefore)}, {"valid until", until},
	}
	if c.Planned != nil {
		rows = append(rows, []string{"renewal", when(*c.Planned) + ", profile " + c.Profile})
	}
	for _, name := range c.Names {
		rows = append(rows, []string{"name", name})
	}
	return append(rows, []string{"sha256", c.SHA256})
}

func describe(c *x509.Certificate) certificate {
	names := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	names = append(names, c.EmailAddresses...)
	for _, uri := range c.URIs {
		names = append(names, uri.String())
	}
	return certificate{
		Subject: c.Subject.String(), Issuer: c.Issuer.String(), Serial: c.SerialNumber.Text(16),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, Names: names,
		SHA256: fmt.Sprintf("%x", sha256.Sum256(c.Raw)), DER: c.Raw,
	}
}
