package minted_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"holdfast/client"
	"holdfast/client/broker/minted"
	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// in runs f with a clock of its own and a mint of a source whose credentials live
// ten minutes.
func in(t *testing.T, f func(t *testing.T, m *minted.Mint, s *minted.Source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &minted.Source{Takes: time.Second, Lifetime: 10 * time.Minute, Verdict: "accepted"}
		m, _ := minted.NewWith(s)
		defer m.Close()
		f(t, m, s)
	})
}

func prod() *profile.Profile {
	return &profile.Profile{
		Name: "prod", Key: "alice", Modes: []string{"token", "certificate"},
		Cluster: profile.Cluster{Server: "https://api.prod", CertificateAuthorityData: ca},
	}
}

// by is a request by a process.
func by(pid int32) minted.Request {
	return minted.Request{
		Holder: ticket.Process{UID: 1000, PID: pid, Start: 7}, Profile: prod(), Mode: brokerwire.ModeToken,
		Cluster: &brokerwire.Cluster{Server: "https://api.prod", CertificateAuthorityData: []byte(ca)},
	}
}

func ask(t *testing.T, m *minted.Mint, r minted.Request) brokerwire.Credential {
	t.Helper()
	c, err := m.Credential(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func expectCounts(t *testing.T, s *minted.Source, mints, probes int) {
	t.Helper()
	if m, p := s.Counts(); m != mints || p != probes {
		t.Errorf("%d mints and %d probes, want %d and %d", m, p, mints, probes)
	}
}

func TestHundredAtOnceAreOneMint(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		begun := time.Now()
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				if c := ask(t, m, by(int32(i))); c.Token != "token 1" {
					t.Errorf("got %q", c.Token)
				}
				if took := time.Since(begun); took > s.Takes*12/10 {
					t.Errorf("answered after %s, and a mint takes %s", took, s.Takes)
				}
			})
		}
		group.Wait()
		expectCounts(t, s, 1, 0)
	})
}

func TestLeavingCallerEndsNoMint(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		ctx, cancel := context.WithTimeout(context.Background(), s.Takes/2)
		defer cancel()
		done := make(chan string)
		go func() {
			time.Sleep(s.Takes / 4)
			done <- ask(t, m, by(2)).Token
		}()
		if _, err := m.Credential(ctx, by(1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if got := <-done; got != "token 1" {
			t.Errorf("the other got %q", got)
		}
		expectCounts(t, s, 1, 0)
	})
}

func TestSameUntilRenewalIsDue(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		first := ask(t, m, by(1))
		made := time.Now()
		if want := made.Add(9 * time.Minute).Truncate(time.Second).UTC(); !first.ExpirationTimestamp.Equal(want) {
			t.Errorf("expires %s, want %s", first.ExpirationTimestamp, want)
		}
		for time.Until(first.ExpirationTimestamp) > 11*time.Second {
			if again := ask(t, m, by(1)); again != first {
				t.Fatalf("another credential %s before its end", time.Until(first.ExpirationTimestamp))
			}
			time.Sleep(time.Second)
		}
		if mints, _ := s.Counts(); mints != 1 {
			t.Errorf("%d mints", mints)
		}
	})
}

func TestMargin(t *testing.T) {
	for lifetime, want := range map[time.Duration]time.Duration{
		24 * time.Hour: time.Minute, 10 * time.Minute: time.Minute, 400 * time.Second: 40 * time.Second,
		5 * time.Minute: 30 * time.Second, time.Minute: 30 * time.Second,
	} {
		if got := minted.Margin(lifetime); got != want {
			t.Errorf("%s: %s, want %s", lifetime, got, want)
		}
	}
}

// A caller that keeps asking never waits, although a mint takes a second.
func TestRefreshAhead(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		ask(t, m, by(1))
		begun := time.Now()
		for i := int32(2); time.Since(begun) < 2*time.Hour; i++ {
			before := time.Now()
			c := ask(t, m, by(i))
			if took := time.Since(before); took != 0 || !time.Now().Before(c.ExpirationTimestamp) {
				t.Fatalf("waited %s for what ends in %s", took, time.Until(c.ExpirationTimestamp))
			}
			time.Sleep(3 * time.Second)
		}
		if mints, _ := s.Counts(); mints < 13 || mints > 15 {
			t.Errorf("%d mints in two hours of ten-minute credentials", mints)
		}
	})
}

// After the last request: one mint at most, and memory is empty without another
// looking.
func TestIdle(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		c := ask(t, m, by(1))
		time.Sleep(time.Until(c.ExpirationTimestamp))
		synctest.Wait()
		if m.Count("prod") != 1 {
			t.Error("not refreshed ahead")
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if m.Count("prod") != 0 || m.Len() != 0 {
			t.Errorf("%d credentials and %d entries are left", m.Count("prod"), m.Len())
		}
		time.Sleep(24 * time.Hour)
		expectCounts(t, s, 2, 0)
	})
}

// A controller asks when its credential has expired, and only then.
func TestAskedAtExpiryOnly(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		c := ask(t, m, by(1))
		for range 10 {
			time.Sleep(time.Until(c.ExpirationTimestamp) + time.Millisecond)
			before := time.Now()
			next := ask(t, m, by(1))
			if next.Token == c.Token || time.Since(before) != 0 {
				t.Fatalf("got %q after %q and %s", next.Token, c.Token, time.Since(before))
			}
			c = next
		}
		if _, probes := s.Counts(); probes != 0 {
			t.Errorf("%d probes", probes)
		}
	})
}

func TestTwentyRunsFromOneShell(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		for range 20 {
			ask(t, m, by(1))
			time.Sleep(50 * time.Millisecond)
		}
		expectCounts(t, s, 1, 1)
		for range 100 {
			ask(t, m, by(1))
			time.Sleep(100 * time.Millisecond)
		}
		if mints, probes := s.Counts(); mints != 1 || probes > 4 {
			t.Errorf("%d mints and %d probes after 11 s", mints, probes)
		}
	})
}

func TestOtherProcessesAreNotSuspicious(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		for i := range int32(20) {
			ask(t, m, by(i))
			time.Sleep(time.Second)
		}
		expectCounts(t, s, 1, 0)
	})
}

func TestRefused(t *testing.T) {
	for verdict, want := range map[string]string{"refused": "token 2", "accepted": "token 1", "unknown": "token 1"} {
		in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
			ask(t, m, by(1))
			time.Sleep(time.Second)
			s.Verdict = verdict
			if got := ask(t, m, by(1)).Token; got != want {
				t.Errorf("%s: got %q, want %q", verdict, got, want)
			}
		})
	}
}

// The client says so itself, and is believed no more than that.
func TestUnauthorized(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		ask(t, m, by(1))
		time.Sleep(time.Second)
		for i := range int32(50) {
			r := by(100 + i)
			r.Unauthorized = true
			if got := ask(t, m, r).Token; got != "token 1" {
				t.Errorf("got %q", got)
			}
		}
		expectCounts(t, s, 1, 1)
	})
}

// A cluster that refuses everything is not asked for ever more.
func TestRefusedAgainAndAgain(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Verdict = "refused"
		failed := 0
		for begun := time.Now(); time.Since(begun) < 5*time.Minute; time.Sleep(100 * time.Millisecond) {
			_, err := m.Credential(context.Background(), by(1))
			var e *fault.Error
			if err != nil && (!errors.As(err, &e) || e.RetryAfter <= 0) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				failed++
			}
		}
		if mints, _ := s.Counts(); mints < 3 || mints > 25 || failed == 0 {
			t.Errorf("%d mints, %d failures in 5 minutes", mints, failed)
		}
	})
}

// A refused credential is not handed out again, even when there is no other.
func TestDifferentAfterRefusal(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Same = true
		ask(t, m, by(1))
		time.Sleep(time.Second)
		s.Verdict = "refused"
		if c, err := m.Credential(context.Background(), by(1)); err == nil {
			t.Errorf("got %q again", c.Token)
		}
	})
}

func TestFailuresAreShared(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		cause := errors.New("down")
		s.Fail(cause)
		var waited time.Duration
		for begun, i := time.Now(), int32(0); time.Since(begun) < 5*time.Minute; i++ {
			before := time.Now()
			_, err := m.Credential(context.Background(), by(i))
			var e *fault.Error
			if !errors.As(err, &e) || !errors.Is(err, cause) || e.RetryAfter <= 0 || e.RetryAfter > 30*time.Second {
				t.Fatalf("got %v", err)
			}
			waited += time.Since(before)
			time.Sleep(20 * time.Millisecond)
		}
		// 1+2+4+8+16 s, then 30 s each, of which a fifth may be missing; 1 s each for the try.
		if mints, _ := s.Counts(); mints < 10 || mints > 18 || waited != time.Duration(mints)*s.Takes {
			t.Errorf("%d tries, %s waited", mints, waited)
		}
		s.Fail(nil)
		time.Sleep(30 * time.Second)
		ask(t, m, by(1))
	})
}

// An API server or an agent that is being restarted costs its callers some time,
// and few tries, which they share; what will not pass by itself costs none.
func TestRestartIsOutlasted(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Fail(&client.UnreachableError{Reason: "restarting"})
		begun := time.Now()
		time.AfterFunc(3*time.Second, func() { s.Fail(nil) })
		var all sync.WaitGroup
		for i := range int32(100) {
			all.Go(func() { ask(t, m, by(i)) })
		}
		all.Wait()
		if mints, _ := s.Counts(); mints > 5 || time.Since(begun) > 10*time.Second {
			t.Errorf("%d tries in %s", mints, time.Since(begun))
		}
	})
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Fail(&client.UnreachableError{Reason: "gone for good"})
		begun := time.Now()
		if _, err := m.Credential(context.Background(), by(1)); err == nil || time.Since(begun) > 10*time.Second {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
	})
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Fail(errors.New("no such account"))
		begun := time.Now()
		if _, err := m.Credential(context.Background(), by(1)); err == nil || time.Since(begun) > s.Takes {
			t.Errorf("got %v after %s", err, time.Since(begun))
		}
	})
}

// A failing refresh takes nothing from those who have something.
func TestFailingRefresh(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		c := ask(t, m, by(1))
		s.Fail(errors.New("down"))
		for i := int32(2); time.Now().Before(c.ExpirationTimestamp); i++ {
			if got := ask(t, m, by(i)); got != c {
				t.Fatalf("got %v", got)
			}
			time.Sleep(time.Second)
		}
		if mints, _ := s.Counts(); mints < 2 || mints > 6 {
			t.Errorf("%d tries", mints)
		}
		if _, err := m.Credential(context.Background(), by(1)); err == nil {
			t.Error("the credential outlived its end")
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if m.Len() != 0 {
			t.Error("the failure is remembered for ever")
		}
	})
}

func TestMintThatNeverEnds(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		s.Hangs = true
		begun := time.Now()
		_, err := m.Credential(context.Background(), by(1))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 5*time.Minute {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

func TestClocksDiffer(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		for name, change := range map[string]func(){
			"begins later": func() { s.From = time.Minute },
			"ends at once": func() { s.From, s.Lifetime = 0, 25*time.Second },
			"has ended":    func() { s.From, s.Lifetime = 0, -time.Hour },
		} {
			change()
			_, err := m.Credential(context.Background(), by(1))
			var e *fault.Error
			if !errors.As(err, &e) || e.Hint != "the clocks of this machine and of the cluster differ: timedatectl shows this one's" {
				t.Errorf("%s: got %v", name, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestForget(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		ask(t, m, by(1))
		other := uint32(2000)
		m.Forget("prod", &other)
		m.Forget("staging", nil)
		if m.Count("prod") != 1 {
			t.Error("forgot another's")
		}
		own := uint32(1000)
		m.Forget("prod", &own)
		if m.Count("prod") != 0 || ask(t, m, by(1)).Token != "token 2" {
			t.Error("not forgotten")
		}
		m.Forget("", nil)
		expectCounts(t, s, 2, 0)
	})
}

// A credential that is forgotten during its mint is not handed out: the key may be locked.
func TestForgetWhileMinting(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		go func() {
			time.Sleep(s.Takes / 2)
			s.Fail(errors.New("locked"))
			m.Forget("", nil)
		}()
		if c, err := m.Credential(context.Background(), by(1)); err == nil || !strings.HasPrefix(err.Error(), "locked") {
			t.Errorf("got %q, %v", c.Token, err)
		}
	})
}

func TestClosed(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, _ *minted.Source) {
		m.Close()
		if _, err := m.Credential(context.Background(), by(1)); err == nil {
			t.Error("a closed mint answers")
		}
	})
}

func TestNothingIsSharedWithOthers(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, _ *minted.Source) {
		seen := map[string]string{}
		for name, change := range map[string]func(*minted.Request){
			"base":    func(*minted.Request) {},
			"uid":     func(r *minted.Request) { r.Holder.UID++ },
			"unit":    func(r *minted.Request) { r.Holder.Unit = "a.service" },
			"mode":    func(r *minted.Request) { r.Mode = brokerwire.ModeCertificate },
			"profile": func(r *minted.Request) { r.Profile.Name = "staging" },
			"key":     func(r *minted.Request) { r.Profile.Key = "bob" },
			"account": func(r *minted.Request) { r.Profile.Token.ServiceAccount = "x" },
		} {
			r := by(1)
			change(&r)
			got := ask(t, m, r).Token
			if other, taken := seen[got]; taken {
				t.Errorf("%s and %s got the same credential", name, other)
			}
			seen[got] = name
		}
	})
}

func TestBounded(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, _ *minted.Source) {
		for i := range 100 {
			r := by(1)
			r.Profile.Name = fmt.Sprint("p", i)
			ask(t, m, r)
		}
		if n := m.Len(); n != 64 {
			t.Errorf("%d entries of one uid, want 64", n)
		}
		for i := range uint32(1500) {
			r := by(1)
			r.Holder.UID = 5000 + i
			ask(t, m, r)
		}
		if n := m.Len(); n != 1024 {
			t.Errorf("%d entries in all, want 1024", n)
		}
	})
}

// Mints under way are not evicted, and further callers are told to wait.
func TestBoundedMints(t *testing.T) {
	in(t, func(t *testing.T, m *minted.Mint, s *minted.Source) {
		var group sync.WaitGroup
		var mu sync.Mutex
		busy := 0
		for i := range 100 {
			group.Go(func() {
				r := by(1)
				r.Profile.Name = fmt.Sprint("p", i)
				_, err := m.Credential(context.Background(), r)
				mu.Lock()
				defer mu.Unlock()
				if fault.KindOf(err) == fault.Busy {
					busy++
				}
			})
		}
		group.Wait()
		if busy != 36 {
			t.Errorf("%d of 100 were told to wait", busy)
		}
		expectCounts(t, s, 64, 0)
	})
}
