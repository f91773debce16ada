package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
)

// lockTime is the timeout for the lock of a kubeconfig that another program edits.
const lockTime = 5 * time.Second

// editFile edits a kubeconfig file.
func editFile(ctx context.Context, path string, change func([]byte) ([]byte, error)) error {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	err := edit.File(ctx, path, change)
	switch {
	case errors.Is(err, edit.ErrLocked):
		return failf("wait for it, or remove "+path+".lock when the program that made it has ended", "%w", err)
	case errors.Is(err, edit.ErrLayout):
		return failf("kubectl config view --raw --flatten writes it again, without comments; save that to another file and name it with --kubeconfig",
			"%w", err)
	}
	return err
}

// writeAll writes the profile and the kubeconfig, or neither. The profile comes first:
// the broker gives it the server that the kubeconfig names.
func (a *app) writeAll(ctx context.Context, o *addOptions, file string, p, known *profile.Profile, e *edit.Entry) error {
	dir := profile.Directory(o.system)
	written := false
	err := editFile(ctx, file, func(data []byte) ([]byte, error) {
		edited, err := edit.Add(data, e)
		if err != nil {
			return nil, err
		}
		if err := profile.Write(dir, p); err != nil {
			return nil, err
		}
		written = true
		if o.mode != profile.ModeProxy {
			return edited, nil
		}
		status, err := a.brokerStatus(ctx, &o.kubeOptions)
		if err != nil {
			return nil, err
		}
		if e.Cluster, err = loopback(p, status); err != nil {
			return nil, err
		}
		return edit.Add(data, e)
	})
	switch {
	case err == nil || !written:
		return err
	case known == nil:
		return errors.Join(err, profile.Remove(dir, p.Name))
	}
	return errors.Join(err, profile.Write(dir, known))
}

// addedContext is the JSON form of `kubeconfig add`.
type addedContext struct {
	Profile    string `json:"profile"`
	Server     string `json:"server"`
	Key        string `json:"key"`
	Context    string `json:"context"`
	Kubeconfig string `json:"kubeconfig"`
}

// added prints what was done, and the next step.
func (a *app) added(ctx context.Context, o *addOptions, file string, p *profile.Profile) error {
	name := o.name
	if o.replace {
		name = o.context
	}
	if a.asJSON {
		return a.json(addedContext{Profile: p.Name, Server: p.Cluster.Server, Key: p.Key, Context: name, Kubeconfig: file})
	}
	err := table(a.stdout,
		[]string{"profile", fmt.Sprintf("%s, in %s", p.Name, profile.Directory(o.system))},
		[]string{"server", serverOf(p)},
		[]string{"key", p.Key},
		[]string{"context", fmt.Sprintf("%s, in %s", name, file)},
		[]string{"try it", "kubectl --context " + quoted(name) + " auth whoami"},
		[]string{"undo it", "holdfast kubeconfig remove " + quoted(name)},
	)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "\nTo have kubectl run no plugin but this one (1.35 and later), ~/.kube/kuberc says:\n\n%s", kuberc(pluginPath()))
	if o.mode == profile.ModeCertificate {
		a.noteApproval(ctx, p)
	}
	status, err := a.brokerStatus(ctx, &o.kubeOptions)
	if err != nil {
		a.note("the broker could not be asked whether it has read the profile: %s", explain(err).message)
		return nil
	}
	if fault, hint := brokerFault(status, p.Name); fault != "" {
		a.note("%s; %s", fault, hint)
	}
	return nil
}

// serverOf shows a profile's server, and the proxy to it without its password.
func serverOf(p *profile.Profile) string {
	proxy, err := url.Parse(p.Cluster.ProxyURL)
	if err != nil || p.Cluster.ProxyURL == "" {
		return p.Cluster.Server
	}
	return p.Cluster.Server + ", through " + proxy.Redacted()
}

// brokerFault returns the broker's fault for a profile, and the next step.
func brokerFault(status brokerwire.GetStatusReply, name string) (fault, hint string) {
	for _, known := range status.Profiles {
		if known.Name == name {
			return known.Fault, known.Hint
		}
	}
	return "the broker does not know profile " + name, "it may read its profiles from another directory: its log says so, journalctl --user -u holdfast-broker"
}

// kuberc holds the preferences that keep kubectl from running any other plugin
// (kubectl.config.k8s.io/v1beta1).
func kuberc(path string) string {
	return strings.Join([]string{
		"apiVersion: kubectl.config.k8s.io/v1beta1", "kind: Preference", "credentialPluginPolicy: Allowlist",
		"credentialPluginAllowlist:", "- command: " + path, "",
	}, "\n")
}

// quoted writes a word for a shell.
func quoted(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+,=", r)
	}) || word == "" {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// exists reports whether a profile's file is there, faulty or not.
func exists(dir, name string) bool {
	_, err := os.Stat(dir + "/" + name + ".yaml")
	return err == nil
}
