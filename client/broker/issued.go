package broker

import (
	"log/slog"

	"holdfast/client/broker/ticket"
	"holdfast/client/broker/upstream"
	"holdfast/client/profile"
	"holdfast/internal/keys"
)

// issued is everything that was obtained under the profiles: tickets, connections
// to API servers, and minted credentials. It ends them when their reason ends.
type issued struct {
	log      *slog.Logger
	profiles *profileCache
	tickets  *ticket.Table
	pools    *upstream.Pools
	mint     mint
}

// dropAll ends connections and minted credentials of all profiles.
func (i *issued) dropAll(why string) {
	i.log.Info("connections are cut", "reason", why)
	i.pools.Drop("")
	i.mint.Forget("", nil)
}

// dropProfile ends everything of a profile that has changed or is gone.
func (i *issued) dropProfile(name string) {
	i.log.Info("profile changed", "profile", name)
	i.drop(name)
}

// dropKey ends everything of the profiles of a key.
func (i *issued) dropKey(name, why string) {
	i.lockKey(name, why)
	for _, p := range i.profilesOf(name) {
		i.tickets.ForgetAll(p.Name)
	}
}

// lockKey ends the connections and the minted credentials of the profiles of a key; of
// all profiles when the name is empty. The tickets stay, and open nothing until the key
// is unlocked: without one, a client would run the plugin for each of its requests.
func (i *issued) lockKey(name, why string) {
	for _, p := range i.profilesOf(name) {
		i.log.Info("connections are cut", "profile", p.Name, "key", name, "reason", why)
		i.pools.Drop(p.Name)
		i.mint.Forget(p.Name, nil)
	}
}

func (i *issued) drop(profile string) {
	i.pools.Drop(profile)
	i.mint.Forget(profile, nil)
	i.tickets.ForgetAll(profile)
}

// retireKey gives new requests of the profiles of a key a fresh handshake, of all
// profiles when the name is empty; requests in progress go on.
func (i *issued) retireKey(name, why string) {
	for _, p := range i.profilesOf(name) {
		i.log.Info("connections are retired", "profile", p.Name, "key", name, "reason", why)
		i.pools.Retire(p.Name, nil)
	}
}

// forget ends everything that uid has of a profile. The connections of other users
// of the profile stay, unless all is set.
func (i *issued) forget(profile string, uid uint32, all bool) {
	i.tickets.Forget(profile, uid)
	i.mint.Forget(profile, &uid)
	if all {
		i.pools.Drop(profile)
		return
	}
	i.pools.Retire(profile, &uid)
}

// close ends everything.
func (i *issued) close() {
	i.mint.Close()
	i.pools.Close()
	i.tickets.Close()
}

// profilesOf returns the profiles that a key, or a key of a set, signs in for; all
// when the name is empty. A profile names a set, or one generation of it.
func (i *issued) profilesOf(name string) []*profile.Profile {
	all, _, _ := i.profiles.list()
	var list []*profile.Profile
	for _, p := range all {
		if name == "" || p.Key == name || p.Key == keys.SetOf(name) || keys.SetOf(p.Key) == name {
			list = append(list, p)
		}
	}
	return list
}
