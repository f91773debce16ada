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
func (a *app) brokerStatus(ctx context.Context, o *kubeOptions) (brokerwire.GetStatusReply, error) {
	ctx, cancel := context.WithTimeout(ctx, a.timeouts.state)
	defer cancel()
	var status brokerwire.GetStatusReply
	path := o.brokerSocket()
	conn, err := dial.Broker().Connect(ctx, path)
	if err != nil {
		return status, brokerError(path, err)
	}
	defer conn.Close()
	if err := conn.Call(ctx, brokerwire.GetStatus, brokerwire.Empty{}, &status); err != nil {
		return status, brokerError(path, err)
	}
	return status, nil
}

// brokerError returns the error of a call as the command reports it.
func brokerError(path string, err error) error {
	var answered *varlink.Error
	var unreachable *dial.UnreachableError
	switch {
	case errors.As(err, &unreachable), errors.Is(err, context.Canceled):
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
