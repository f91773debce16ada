package main

import (
	"context"
	"encoding/json"
	"errors"

	"holdfast/internal/brokerwire"
	"holdfast/internal/dial"
	"holdfast/internal/fault"
	"holdfast/internal/varlink"
)

// brokerSocket returns the socket of the broker: the machine's, or the first that
// exists.
func (o *kubeOptions) brokerSocket() string {
	if o.system {
		paths := dial.Broker().Paths()
		return paths[len(paths)-1]
	}
	return dial.Broker().Path()
}

// brokerStatus asks the broker about itself.
func (a *app) brokerStatus(ctx context.Context, o *kubeOptions) (status brokerwire.GetStatusReply, err error) {
	err = a.askBroker(ctx, o.brokerSocket(), brokerwire.GetStatus, &status)
	return status, err
}

// askBroker calls a method without parameters of the broker at path.
func (a *app) askBroker(ctx context.Context, path, method string, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeouts.state)
	defer cancel()
	conn, err := dial.Broker().Connect(ctx, path)
	if err == nil {
		defer conn.Close()
		err = conn.Call(ctx, method, brokerwire.Empty{}, reply)
	}
	return brokerError(path, err)
}

// brokerError returns the error of a call as the command reports it.
func brokerError(path string, err error) error {
	var answered *varlink.Error
	var unreachable *dial.UnreachableError
	switch {
	case err == nil, errors.As(err, &unreachable), errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &answered):
		var p fault.Parameters
		if json.Unmarshal(answered.Parameters, &p) == nil {
			if e, ok := brokerwire.Errors().ToError(answered.Name, p); ok {
				return e
			}
		}
		return err
	}
	return &dial.UnreachableError{
		Socket: path, Err: err,
		Reason: "the broker at " + path + " does not answer: " + err.Error(),
		Hint:   "its log says why: journalctl --user -u holdfast-broker",
	}
}
