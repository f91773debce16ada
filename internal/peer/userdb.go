package peer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// UserDatabaseSocket is the socket of systemd's user database, which covers all its
// sources (systemd-userdbd.service(8)), DynamicUser= and systemd-homed among them.
const UserDatabaseSocket = "/run/systemd/userdb/io.systemd.Multiplexer"

// UserDatabaseTimeout is the timeout of one query to the user database.
const UserDatabaseTimeout = 250 * time.Millisecond

// maxUserRecord is the largest reply of the user database, in bytes.
const maxUserRecord = 256 << 10

// errNoRecord says that the user database does not know the user or group.
var errNoRecord = errors.New("no such record")

// userDatabase is a client of io.systemd.UserDatabase (systemd.io/USER_GROUP_API).
// It writes varlink by hand, because this package is a leaf.
type userDatabase struct{ socket string }

// record holds the members that are used of a user or group record
// (systemd.io/USER_RECORD). Each is compared with the query, because a service that
// ignores an unknown member would answer with its first record.
type record struct {
	UserName  string  `json:"userName"`
	UID       *uint32 `json:"uid"`
	GroupName string  `json:"groupName"`
	GID       *uint32 `json:"gid"`
}

type question struct {
	Method     string         `json:"method"`
	Parameters map[string]any `json:"parameters"`
}

type answer struct {
	Error      string `json:"error"`
	Parameters struct {
		Record record `json:"record"`
	} `json:"parameters"`
}

func (d userDatabase) userByUID(uid uint32) (string, error) {
	r, err := d.get("GetUserRecord", "uid", uid)
	if err != nil {
		return "", err
	}
	if r.UID == nil || *r.UID != uid || !userName(r.UserName) {
		return "", errNoRecord
	}
	return r.UserName, nil
}

func (d userDatabase) uidByName(name string) (uint32, error) {
	r, err := d.get("GetUserRecord", "userName", name)
	if err != nil {
		return 0, err
	}
	if r.UID == nil || r.UserName != name {
		return 0, errNoRecord
	}
	return *r.UID, nil
}

func (d userDatabase) gidByName(name string) (uint32, error) {
	r, err := d.get("GetGroupRecord", "groupName", name)
	if err != nil {
		return 0, err
	}
	if r.GID == nil || r.GroupName != name {
		return 0, errNoRecord
	}
	return *r.GID, nil
}

// get asks for the record whose member has the given value.
func (d userDatabase) get(method, member string, value any) (record, error) {
	conn, err := net.DialTimeout("unix", d.socket, UserDatabaseTimeout)
	if err != nil {
		return record{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(UserDatabaseTimeout)); err != nil {
		return record{}, err
	}
	message, err := json.Marshal(question{
		Method:     "io.systemd.UserDatabase." + method,
		Parameters: map[string]any{member: value, "service": "io.systemd.Multiplexer"},
	})
	if err != nil {
		return record{}, err
	}
	if _, err := conn.Write(append(message, 0)); err != nil {
		return record{}, err
	}
	reply, err := readReply(conn)
	if err != nil {
		return record{}, err
	}
	return parseReply(reply)
}

// readReply reads one varlink message, without the zero byte that ends it.
func readReply(conn net.Conn) ([]byte, error) {
	in := bufio.NewReader(conn)
	var reply []byte
	for len(reply) < maxUserRecord {
		part, err := in.ReadSlice(0)
		reply = append(reply, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(reply, []byte{0}), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
	return nil, fmt.Errorf("user database: reply of more than %d bytes", maxUserRecord)
}

func parseReply(reply []byte) (record, error) {
	var a answer
	if err := json.Unmarshal(reply, &a); err != nil {
		return record{}, fmt.Errorf("user database: %w", err)
	}
	if a.Error != "" {
		return record{}, errNoRecord
	}
	return a.Parameters.Record, nil
}
