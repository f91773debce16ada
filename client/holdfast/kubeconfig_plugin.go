package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"holdfast/client/execcredential"
	"holdfast/client/kubeconfig"
	"holdfast/client/kubeconfig/edit"
	"holdfast/client/profile"
)

// execPlugin is the credential plugin's program. Kubeconfigs name it without a
// path: only then kubectl shows the install hint when it is missing.
const execPlugin = "holdfast-exec-plugin"

const installHint = "holdfast-exec-plugin, of the package holdfast, is not in PATH; it signs you in with the key in this machine's TPM"

// plugin returns the exec stanza that runs the plugin for a profile. The version is
// among the arguments unless the plugin takes it by default, because some clients do
// not tell the plugin their entry's.
func plugin(name, mode, version string) *kubeconfig.ExecConfig {
	e := &kubeconfig.ExecConfig{
		APIVersion: version, Command: execPlugin, Args: []string{"--profile", name},
		InstallHint: installHint, InteractiveMode: "Never",
	}
	if mode != profile.ModeProxy {
		e.Args = append(e.Args, "--mode", mode)
		e.ProvideClusterInfo = true
	}
	if version != execcredential.V1 {
		e.Args = append(e.Args, "--api-version", version)
	}
	return e
}

// use is how a user's exec stanza runs the plugin.
type use struct {
	profile, mode string
	shell         bool // by way of some other program, which stays its parent
}

// useOf returns how a user runs the plugin, or false when it does not.
func useOf(user *kubeconfig.AuthInfo) (use, bool) {
	if user.Exec == nil {
		return use{}, false
	}
	u := use{mode: profile.ModeProxy}
	words := user.Exec.Args
	if filepath.Base(user.Exec.Command) != execPlugin {
		words = strings.Fields(strings.Join(words, " "))
		at := slices.IndexFunc(words, func(w string) bool { return filepath.Base(strings.Trim(w, `"';`)) == execPlugin })
		if at < 0 {
			return use{}, false
		}
		u.shell, words = at == 0 || words[at-1] != "exec", words[at+1:]
		for i, word := range words {
			words[i] = strings.Trim(word, `"';`)
		}
	}
	for i, word := range words {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		switch {
		case !strings.HasPrefix(word, "-"):
		case name == "profile":
			u.profile = value
		case name == "mode":
			u.mode = value
		}
	}
	return u, true
}

// contextsByProfile returns the contexts that use each profile.
func contextsByProfile(config *kubeconfig.Config) map[string][]string {
	users := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(config.Contexts)) {
		if user := config.Users[config.Contexts[name].AuthInfo]; user != nil {
			if u, uses := useOf(user); uses && u.profile != "" {
				users[u.profile] = append(users[u.profile], name)
			}
		}
	}
	return users
}

// recordOf returns the record of `kubeconfig add` in the user of a context, or nil.
func recordOf(config *kubeconfig.Config, context string) *edit.Record {
	if c := config.Contexts[context]; c != nil && config.Users[c.AuthInfo] != nil {
		return edit.RecordOf(config.Users[c.AuthInfo])
	}
	return nil
}

// pluginPath returns the path of the plugin: in PATH, else beside this program, else
// where the package installs it.
func pluginPath() string {
	if path, err := exec.LookPath(execPlugin); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return path
		}
	}
	if own, err := os.Executable(); err == nil {
		if path := filepath.Join(filepath.Dir(own), execPlugin); isFile(path) {
			return path
		}
	}
	return "/usr/bin/" + execPlugin
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
