package varlink

import (
	"context"
	_ "embed" // the interface file
)

//go:embed org.varlink.service.varlink
var serviceDescription string

// infoReply is the reply of GetInfo.
type infoReply struct {
	Vendor     string   `json:"vendor"`
	Product    string   `json:"product"`
	Version    string   `json:"version"`
	URL        string   `json:"url"`
	Interfaces []string `json:"interfaces"`
}

// descriptionParameters is the parameters of GetInterfaceDescription.
type descriptionParameters struct {
	Interface string `json:"interface"`
}

// descriptionReply is the reply of GetInterfaceDescription.
type descriptionReply struct {
	Description string `json:"description"`
}

// introspection returns a method of org.varlink.service.
func (s *Service) introspection(short string) (Method, error) {
	switch short {
	case "GetInfo":
		return s.getInfo, nil
	case "GetInterfaceDescription":
		return s.getInterfaceDescription, nil
	}
	return nil, NewError(MethodNotFound, "method", ServiceInterface+"."+short)
}

// getInfo accepts no parameters: a caller that sends some expects an option that does
// not exist.
func (s *Service) getInfo(_ context.Context, call *Call) error {
	if err := call.Decode(&struct{}{}); err != nil {
		return err
	}
	info := infoReply{
		Vendor: s.Vendor, Product: s.Product, Version: s.Version, URL: s.URL,
		Interfaces: []string{ServiceInterface},
	}
	for _, in := range s.Interfaces {
		info.Interfaces = append(info.Interfaces, in.Name)
	}
	return call.Reply(info)
}

func (s *Service) getInterfaceDescription(_ context.Context, call *Call) error {
	var p descriptionParameters
	if err := call.Decode(&p); err != nil {
		return err
	}
	if p.Interface == ServiceInterface {
		return call.Reply(descriptionReply{serviceDescription})
	}
	for _, in := range s.Interfaces {
		if in.Name == p.Interface {
			return call.Reply(descriptionReply{in.Description})
		}
	}
	return NewError(InterfaceNotFound, "interface", p.Interface)
}
