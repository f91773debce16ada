package enroll

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"strings"

	"holdfast/internal/fault"
)

// ParseSubject reads a distinguished name such as CN=alice,O=dev. A comma, an
// equals sign or a backslash in a value has a backslash before it (RFC 4514,
// section 2.4). The result has the attributes in the order of pkix.Name, not in
// that of the text.
func ParseSubject(text string) (pkix.Name, error) {
	var name pkix.Name
	for rest := text; rest != ""; {
		attribute, after, ok := strings.Cut(rest, "=")
		if !ok {
			return name, &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("subject %q: %q has no =", text, rest), Hint: "write CN=alice,O=dev"}
		}
		value, next, err := subjectValue(after)
		if err != nil {
			return name, fmt.Errorf("subject %q: %w", text, err)
		}
		if err := setAttribute(&name, strings.ToUpper(strings.TrimSpace(attribute)), value); err != nil {
			return name, fmt.Errorf("subject %q: %w", text, err)
		}
		rest = next
	}
	return name, nil
}

// subjectValue cuts text at the first comma that has no backslash before it.
func subjectValue(text string) (value, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '\\':
			i++
			if i == len(text) {
				return "", "", fmt.Errorf("it ends in a backslash")
			}
			b.WriteByte(text[i])
		case ',':
			if i+1 == len(text) {
				return "", "", fmt.Errorf("it ends in a comma")
			}
			return strings.TrimSpace(b.String()), text[i+1:], nil
		case '+', '"', '=':
			return "", "", fmt.Errorf("a %q in a value needs a backslash before it", c)
		default:
			b.WriteByte(c)
		}
	}
	return strings.TrimSpace(b.String()), "", nil
}

// uidAttribute is the userid of RFC 4519, section 2.39.
func uidAttribute() asn1.ObjectIdentifier {
	return asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}
}

func setAttribute(name *pkix.Name, attribute, value string) error {
	lists := map[string]*[]string{
		"O": &name.Organization, "OU": &name.OrganizationalUnit, "C": &name.Country, "L": &name.Locality,
		"ST": &name.Province, "STREET": &name.StreetAddress, "POSTALCODE": &name.PostalCode,
	}
	single := map[string]*string{"CN": &name.CommonName, "SERIALNUMBER": &name.SerialNumber}
	switch {
	case value == "":
		return fmt.Errorf("%s has no value", attribute)
	case lists[attribute] != nil:
		*lists[attribute] = append(*lists[attribute], value)
	case single[attribute] != nil && *single[attribute] != "":
		return fmt.Errorf("%s is given twice", attribute)
	case single[attribute] != nil:
		*single[attribute] = value
	case attribute == "UID":
		name.ExtraNames = append(name.ExtraNames, pkix.AttributeTypeAndValue{Type: uidAttribute(), Value: value})
	default:
		return fmt.Errorf("attribute %q is not known; one of CN, O, OU, C, L, ST, STREET, POSTALCODE, SERIALNUMBER, UID", attribute)
	}
	return nil
}
