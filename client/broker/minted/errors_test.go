package minted

import (
	"context"
	"errors"
	"testing"

	"holdfast/client"
	"holdfast/client/broker/upstream"
	"holdfast/client/exchange/kubernetes"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// The kind of a failure is that of its cause, and the next step names the profile.
func TestKinds(t *testing.T) {
	for _, test := range []struct {
		err  error
		want fault.Kind
		next fault.Next
	}{
		{&client.UnreachableError{Reason: "no agent"}, brokerwire.AgentUnreachable, fault.Next{}},
		{&upstream.Error{Class: upstream.Key, Fault: &fault.Error{Kind: fault.PINRequired}}, fault.PINRequired, fault.Next{}},
		{&fault.Error{Kind: fault.NotFound, Hint: "…", Next: fault.Next{Do: fault.Enroll}}, fault.NotFound, fault.Next{Do: fault.Enroll, Profile: "prod"}},
		{&kubernetes.StatusError{Code: 403}, brokerwire.Upstream, fault.Next{}},
		{&kubernetes.StatusError{Code: 401}, brokerwire.Upstream, fault.Next{Do: fault.Enroll, Profile: "prod"}},
		{context.DeadlineExceeded, fault.Deadline, fault.Next{}},
		{&kubernetes.PendingError{Name: "csr", Err: context.DeadlineExceeded}, fault.Deadline, fault.Next{}},
		{errors.New("odd"), brokerwire.Upstream, fault.Next{}},
	} {
		e := explain(test.err, &profile.Profile{Name: "prod"}, brokerwire.ModeToken)
		if e.Kind != test.want || e.Next != test.next || !errors.Is(e, test.err) || test.next.Do != "" && e.Hint != "" {
			t.Errorf("%v: got %+v, want %s %+v", test.err, e, test.want, test.next)
		}
	}
}
