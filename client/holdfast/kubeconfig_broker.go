package main

import (
	"context"
	"encoding/json"
	"errors"

	"holdfast/client/broker/fault"
	"holdfast/client/broker/wire"
	"holdfast/client/socket"
	"holdfast/client/varlink"
)

// brokerSocket is where the broker is asked: the machine's, or the first that is
// there.
func (o *kubeOptions) brokerSocket() string {
	if o.system {
		paths := socket.Broker().Paths()
		return paths[len(paths)-1]
	}
	return socket.Broker().Path()
}

// brokerStatus asks the broker about itself.
func (a *app) brokerStatus(ctx context.Context, o *kubeOptions) (wire.GetStatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.patience.state)
	defer cancel()
	var status wire.GetStatusReply
	path := o.brokerSocket()
	conn, err := socket.Broker().Connect(ctx, path)
	if err != nil {
		return status, brokerError(path, err)
	}
	defer conn.Close()
	if err := conn.Call(ctx, wire.GetStatus, wire.Empty{}, &status); err != nil {
		return status, brokerError(path, err)
	}
	return status, nil
}

// brokerError turns an error of a call into one of the person's.
func brokerError(path string, err error) error {
	var answered *varlink.Error
	var unreachable *socket.UnreachableError
	switch {
	case errors.As(err, &unreachable), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &answered):
		var p fault.Parameters
		if json.Unmarshal(answered.Parameters, &p) == nil {
			if e, ok := fault.To(answered.Name, p); ok {
				return e
			}
		}
		return err
	}
	return &socket.UnreachableError{
		Socket: path, Err: err,
		Reason: "the broker at " + path + " does not answer: " + err.Error(),
		Hint:   "its log says why: journalctl --user -u holdfast-broker",
	}
}
