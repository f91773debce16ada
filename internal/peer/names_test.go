package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/test/pace"
)

const passwd = "root:x:0:0:root:/root:/bin/bash\nalice:x:1000:1000::/home/alice:/bin/sh\nalias:x:1000:1000::/:/bin/sh\n"

// testNames returns Names with files of the test's own and a user database that
// answers with reply; each question counts.
func testNames(t *testing.T, reply func(net.Conn)) (*Names, *atomic.Int32) {
	t.Helper()
	directory := t.TempDir()
	n := &Names{
		Passwd: filepath.Join(directory, "passwd"), Group: filepath.Join(directory, "group"),
		UserDatabase: filepath.Join(directory, "s"),
	}
	write(t, n.Passwd, passwd)
	write(t, n.Group, "root:x:0:\ndev:x:2000:alice,bob\n")
	asked := new(atomic.Int32)
	if reply == nil {
		return n, asked
	}
	l, err := net.Listen("unix", n.UserDatabase)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			asked.Add(1)
			reply(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return n, asked
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// database answers as systemd does, about one user and one group.
func database(conn net.Conn) {
	message := make([]byte, 4096)
	n, _ := conn.Read(message)
	var q struct {
		Method     string
		Parameters struct {
			UID                          *uint32
			UserName, GroupName, Service string
		}
	}
	err := json.Unmarshal(bytes.TrimSuffix(message[:n], []byte{0}), &q)
	reply := `{"error":"io.systemd.UserDatabase.NoRecordFound","parameters":{}}`
	switch p := q.Parameters; {
	case err != nil || p.Service != "io.systemd.Multiplexer":
		reply = `{"error":"io.systemd.UserDatabase.BadService","parameters":{}}`
	case q.Method == "io.systemd.UserDatabase.GetUserRecord" && (p.UID != nil && *p.UID == 61184 || p.UserName == "dynamic"):
		reply = `{"parameters":{"record":{"userName":"dynamic","uid":61184,"gid":61184,"more":[1,{"x":2}]},"incomplete":false}}`
	case q.Method == "io.systemd.UserDatabase.GetGroupRecord" && p.GroupName == "dyngroup":
		reply = `{"parameters":{"record":{"groupName":"dyngroup","gid":61200},"incomplete":false}}`
	}
	conn.Write(append([]byte(reply), 0))
}

func TestNames(t *testing.T) {
	n, _ := testNames(t, database)
	for uid, want := range map[uint32]string{0: "root", 1000: "alice", 1001: "", 61184: "dynamic"} {
		if got := n.User(uid); got != want {
			t.Errorf("user %d: got %q, want %q", uid, got, want)
		}
	}
	for name, want := range map[string]uint32{"root": 0, "alice": 1000, "alias": 1000, "dynamic": 61184} {
		if got, found := n.UID(name); got != want || !found {
			t.Errorf("user %s: got %d, %t, want %d", name, got, found, want)
		}
	}
	for name, want := range map[string]uint32{"root": 0, "dev": 2000, "dyngroup": 61200} {
		if got, found := n.GID(name); got != want || !found {
			t.Errorf("group %s: got %d, %t, want %d", name, got, found, want)
		}
	}
	if got, found := n.UID("nobody-has-this"); found {
		t.Errorf("unknown user: got %d", got)
	}
	if got, found := n.GID("alice"); found {
		t.Errorf("a user as group: got %d", got)
	}
}

func TestNamesFollowTheFile(t *testing.T) {
	n, _ := testNames(t, nil)
	steps := []struct{ about, passwd, want string }{
		{"first", passwd, "alice"},
		{"recycled", strings.ReplaceAll(passwd, "alice", "mally"), "mally"},
		{"first name taken away", "alias:x:1000:1000::/:/bin/sh\n", "alias"},
		{"removed", "root:x:0:0:root:/root:/bin/bash\n", ""},
		{"back", passwd, "alice"},
		{"empty", "", ""},
		{"nonsense", "alice\n:x:1000:1000::/:\nalice:x:1000\nalice:x:-1000:1::/:/\n+alice:x:1000:1::/:/\n1000:x:1000:1::/:/\n", ""},
	}
	for _, s := range steps {
		write(t, n.Passwd, s.passwd)
		if got := n.User(1000); got != s.want {
			t.Errorf("%s: got %q, want %q", s.about, got, s.want)
		}
	}
	write(t, n.Passwd, passwd)
	if got := n.User(1000); got != "alice" {
		t.Fatalf("got %q", got)
	}
	if err := os.Remove(n.Passwd); err != nil {
		t.Fatal(err)
	}
	if got := n.User(1000); got != "" {
		t.Errorf("without the file: got %q, want no name", got)
	}
}

func TestNamesAskOnce(t *testing.T) {
	n, asked := testNames(t, database)
	for range 3 {
		n.User(1000)
		n.User(61184)
		n.User(5555)
	}
	if got := asked.Load(); got != 2 {
		t.Errorf("got %d questions, want one for each of two uids that are not in the file", got)
	}
	write(t, n.Passwd, passwd)
	if n.User(5555); asked.Load() != 3 {
		t.Errorf("got %d questions, want another one once the file is new", asked.Load())
	}
	write(t, n.Passwd, passwd+"x:x:5555:1::/:/bin/sh\n")
	if got := n.User(5555); got != "x" {
		t.Errorf("got %q, want the new name", got)
	}
}

func TestBadUserDatabase(t *testing.T) {
	say := func(text string) func(net.Conn) {
		return func(conn net.Conn) {
			conn.Read(make([]byte, 4096))
			conn.Write([]byte(text))
		}
	}
	const record = `{"parameters":{"record":{"userName":"%s","uid":%d}}}` + "\x00"
	cases := []struct {
		about string
		reply func(net.Conn)
		want  string
	}{
		{"good", say(fmt.Sprintf(record, "carol", 7000)), "carol"},
		{"another uid", say(fmt.Sprintf(record, "carol", 7001)), ""},
		{"no uid", say(`{"parameters":{"record":{"userName":"carol"}}}` + "\x00"), ""},
		{"name with a newline", say(fmt.Sprintf(record, `a\nb`, 7000)), ""},
		{"name is a number", say(fmt.Sprintf(record, "1000", 7000)), ""},
		{"no name", say(fmt.Sprintf(record, "", 7000)), ""},
		{"no end", say(strings.TrimSuffix(fmt.Sprintf(record, "carol", 7000), "\x00")), ""},
		{"no JSON", say("carol\x00"), ""},
		{"nothing", func(net.Conn) {}, ""},
		{"too much", func(conn net.Conn) {
			conn.Read(make([]byte, 4096))
			conn.Write(bytes.Repeat([]byte(" "), maxUserRecord+1))
			conn.Write([]byte(fmt.Sprintf(record, "carol", 7000)))
		}, ""},
		{"silence", func(conn net.Conn) {
			conn.SetReadDeadline(time.Now().Add(10 * time.Second))
			conn.Read(make([]byte, 4096))
			conn.Read(make([]byte, 1)) // until the other side gives up
		}, ""},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			n, asked := testNames(t, c.reply)
			began := time.Now()
			if got := n.User(7000); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if took := time.Since(began); pace.Over(t, took, 20*UserDatabaseTimeout) {
				t.Errorf("took %v", took)
			}
			if asked.Load() != 1 {
				t.Errorf("got %d questions, want 1", asked.Load())
			}
		})
	}
}

func TestUserName(t *testing.T) {
	for name, want := range map[string]bool{
		"alice": true, "a.b-c_d": true, "machine$": true, "DOM\\alice": true, "alice@example": true, "0x": true,
		"": false, "1000": false, "-x": false, "+x": false, "~x": false, ".": false, "..": false, "a b": false,
		"a:b": false, "a,b": false, "a/b": false, "a\n": false, "a\x7f": false, strings.Repeat("a", 256): false,
	} {
		if got := userName(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

func FuzzParseEntries(f *testing.F) {
	seeds := []string{passwd, "a:x:1:\n", "::::::\n", "a:x:4294967296:0:::\n", "\n\n:", "+::::::\n"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, text string, group bool) {
		fields := passwdFields
		if group {
			fields = groupFields
		}
		for _, e := range parseEntries(text, fields) {
			if !userName(e.name) || !strings.Contains(text, e.name+":") {
				t.Errorf("%q gave %+v", text, e)
			}
		}
	})
}

func FuzzParseReply(f *testing.F) {
	seeds := []string{`{"parameters":{"record":{"userName":"a","uid":1}}}`, `{"error":"x"}`, `{"parameters":{"record":{"uid":-1}}}`, "[]", "{"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, reply []byte) {
		r, err := parseReply(reply)
		if err != nil && (r.UID != nil || r.GID != nil || r.UserName != "" || r.GroupName != "") {
			t.Errorf("%q gave %+v with %v", reply, r, err)
		}
	})
}
