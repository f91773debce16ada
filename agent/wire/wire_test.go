package wire

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/agent/keys"
	"holdfast/client/varlink"
)

// methods says which Go types stand for the parameters and the reply of each
// method. Whatever the interface file has must be here.
var methods = map[string]struct{ in, out any }{
	ListKeys:               {ListKeysParameters{}, ListKeysReply{}},
	GetKey:                 {NameParameters{}, KeyReply{}},
	CreateKey:              {CreateKeyParameters{}, KeyReply{}},
	DeleteKey:              {NameParameters{}, Empty{}},
	ExportKey:              {NameParameters{}, ExportKeyReply{}},
	AdoptKey:               {AdoptKeyParameters{}, KeyReply{}},
	BindKey:                {BindKeyParameters{}, KeyReply{}},
	InstallCertificate:     {InstallCertificateParameters{}, KeyReply{}},
	SignTLSClient:          {SignTLSClientParameters{}, SignReply{}},
	SignTLSServer:          {SignParameters{}, SignReply{}},
	SignCertificateRequest: {SignParameters{}, SignReply{}},
	UnlockKey:              {UnlockKeyParameters{}, UnlockKeyReply{}},
	LockKeys:               {LockKeysParameters{}, Empty{}},
	Seal:                   {SealParameters{}, Empty{}},
	Unseal:                 {NameParameters{}, UnsealReply{}},
	DeleteSealed:           {NameParameters{}, Empty{}},
	GetMetrics:             {Empty{}, GetMetricsReply{}},
	GetStatus:              {Empty{}, GetStatusReply{}},
	CheckPolicy:            {CheckPolicyParameters{}, CheckPolicyReply{}},
	TailAudit:              {TailAuditParameters{}, TailAuditReply{}},
	VerifyAudit:            {Empty{}, VerifyAuditReply{}},
	Watch:                  {Empty{}, WatchReply{}},
}

func description(t *testing.T) *varlink.InterfaceDescription {
	t.Helper()
	d, err := varlink.ParseInterface(varlink.AgentDescription())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestMethods(t *testing.T) {
	d := description(t)
	if d.Name != Interface {
		t.Errorf("the file describes %s, want %s", d.Name, Interface)
	}
	for _, m := range d.Methods {
		types, ok := methods[Interface+"."+m.Name]
		if !ok {
			t.Errorf("method %s has no Go types", m.Name)
			continue
		}
		compare(t, d, m.Name+" in", reflect.TypeOf(types.in), m.In)
		compare(t, d, m.Name+" out", reflect.TypeOf(types.out), m.Out)
	}
	for name := range methods {
		if _, ok := d.Method(strings.TrimPrefix(name, Interface+".")); !ok {
			t.Errorf("%s is not in the interface file", name)
		}
	}
}

// compare holds a struct to the members that the file gives it, in their order.
func compare(t *testing.T, d *varlink.InterfaceDescription, where string, got reflect.Type, want varlink.Type) {
	t.Helper()
	if got.NumField() != len(want.Members) {
		t.Errorf("%s: %s has %d members, the file %d", where, got, got.NumField(), len(want.Members))
		return
	}
	for i, m := range want.Members {
		f := got.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != m.Name {
			t.Errorf("%s: member %d is %s, the file has %s", where, i, name, m.Name)
			continue
		}
		text := wireType(t, d, where+"."+name, f.Type, m.Type)
		if options == "omitempty" && f.Type.Kind() != reflect.Pointer {
			text = "?" + text
		}
		if text != m.Type.String() {
			t.Errorf("%s.%s: got %s, the file has %s", where, name, text, m.Type)
		}
	}
}

// wireType is the type of an interface file that a Go type is encoded as. It goes
// into the types that the file names.
func wireType(t *testing.T, d *varlink.InterfaceDescription, where string, got reflect.Type, want varlink.Type) string {
	t.Helper()
	switch {
	case got == reflect.TypeFor[time.Time](), got == reflect.TypeFor[[]byte](), got.Kind() == reflect.String:
		return "string"
	case got.Kind() == reflect.Bool:
		return "bool"
	case got.Kind() == reflect.Float64:
		return "float"
	case got.Kind() >= reflect.Int && got.Kind() <= reflect.Uint64:
		return "int"
	case got.Kind() == reflect.Pointer:
		return "?" + wireType(t, d, where, got.Elem(), element(want))
	case got.Kind() == reflect.Slice:
		return "[]" + wireType(t, d, where, got.Elem(), element(want))
	case got.Kind() == reflect.Struct:
		named, ok := d.Type(got.Name())
		if !ok {
			t.Errorf("%s: the file has no type %s", where, got.Name())
			return got.Name()
		}
		compare(t, d, got.Name(), got, named)
		return got.Name()
	}
	t.Errorf("%s: %s has no type on the wire", where, got)
	return got.String()
}

func element(t varlink.Type) varlink.Type {
	if t.Element == nil {
		return t
	}
	return *t.Element
}

// Every constant of the package is a method or the interface; every type that the
// file names is in use, and so compared above.
func TestNames(t *testing.T) {
	constants := 0
	for _, value := range constantsOf(t, "wire.go") {
		constants++
		if _, ok := methods[value]; !ok && value != Interface {
			t.Errorf("the constant %s is no method", value)
		}
	}
	if want := len(methods) + 1; constants != want {
		t.Errorf("%d constants, want %d", constants, want)
	}
	text := varlink.AgentDescription()
	for _, named := range description(t).Types {
		if strings.Count(text, named.Name+",")+strings.Count(text, named.Name+")")+strings.Count(text, named.Name+"\n") == 0 {
			t.Errorf("type %s is used nowhere", named.Name)
		}
	}
}

// constantsOf returns the values of the string constants in a file of the
// package, which are literals or Interface and a literal.
func constantsOf(t *testing.T, file string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, value := range spec.Values {
			prefix := ""
			if sum, ok := value.(*ast.BinaryExpr); ok {
				prefix, value = Interface, sum.Y
			}
			literal, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, prefix+literal)
		}
		return true
	})
	return values
}

func TestErrorNames(t *testing.T) {
	d := description(t)
	kinds := map[string]keys.Kind{}
	for _, kind := range keys.Kinds() {
		kinds[ErrorName(kind)] = kind
	}
	for _, e := range d.Errors {
		kind, ok := kinds[Interface+"."+e.Name]
		if !ok {
			t.Errorf("no kind has the name %s", e.Name)
		}
		if got, ok := KindOf(ErrorName(kind)); !ok || got != kind {
			t.Errorf("KindOf(%s): got %s, %v", ErrorName(kind), got, ok)
		}
		full := varlink.Type{Kind: varlink.Struct, Members: e.Parameters.Members}
		if len(full.Members) == 2 {
			busy := errorParameters(d, "Busy")
			full.Members = append(full.Members[:2:2], busy[2:]...)
		}
		compare(t, d, e.Name, reflect.TypeFor[ErrorParameters](), full)
	}
	if len(d.Errors) != len(kinds) {
		t.Errorf("the file has %d errors, there are %d kinds", len(d.Errors), len(kinds))
	}
	if _, ok := KindOf(Interface + ".Newer"); ok {
		t.Error("an error that nobody knows has a kind")
	}
}

func errorParameters(d *varlink.InterfaceDescription, name string) []varlink.Member {
	for _, e := range d.Errors {
		if e.Name == name {
			return e.Parameters.Members
		}
	}
	return nil
}

func TestErrorsCross(t *testing.T) {
	for _, kind := range keys.Kinds() {
		want := &keys.Error{Kind: kind, Message: "a fact", Hint: "a step", RetryAfter: 1500 * time.Millisecond}
		got, ok := ToError(FromError(want))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", kind, got, ok, want)
		}
	}
	name, parameters := FromError(errTest("secret"))
	if want := (ErrorParameters{Message: "internal error", Hint: "the agent's log has the cause"}); name != Interface+".Internal" || parameters != want {
		t.Errorf("an error of no kind: got %s %+v", name, parameters)
	}
	if _, ok := ToError("org.varlink.service.MethodNotFound", ErrorParameters{}); ok {
		t.Error("an error of another interface became one of ours")
	}
}

type errTest string

func (e errTest) Error() string { return string(e) }
